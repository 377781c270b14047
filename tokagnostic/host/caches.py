"""Where a history is kept: inside the host's own cache object.

It has to follow whatever is done to the cache: beams are reordered, rows repeated and selected, drafts rolled back, the
object reset and used again, copied, or put aside while another sequence runs. Therefore the history is an attribute of
the cache, whose class becomes a subclass that passes these operations on; nothing of a sequence lives on a module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from tokagnostic.errors import HostError
from tokagnostic.host.history import History
from tokagnostic.host.mixing import Mixin, mixed

CACHE_ARGUMENTS = ("cache", "past_key_values", "cache_params", "state", "mems")
"""Names under which hosts take what they remember of earlier calls."""
HISTORY = "_tokagnostic_history"
"""Attribute of a cache: the history of the sequences it holds, or None if the memory has not seen all of these."""


class RememberingCache(Mixin):
    """Mixed into the class of a host's cache: what is done to the cache is done to the history."""

    def reset(self, *args: Any, **kwargs: Any) -> None:
        """Forget everything."""
        super().reset(*args, **kwargs)  # type: ignore[misc]
        self.__dict__.pop(HISTORY, None)

    def reorder_cache(self, beam_idx: Tensor, *args: Any, **kwargs: Any) -> Any:
        """Take each row from another one, as beams do."""
        result = super().reorder_cache(beam_idx, *args, **kwargs)  # type: ignore[misc]
        self._change_history(lambda kept: kept.index_select(0, beam_idx.to(kept.device)))
        return result

    def batch_select_indices(self, indices: Tensor, *args: Any, **kwargs: Any) -> Any:
        """Keep some rows."""
        result = super().batch_select_indices(indices, *args, **kwargs)  # type: ignore[misc]
        self._change_history(lambda kept: kept[indices.to(kept.device)])
        return result

    def batch_repeat_interleave(self, repeats: int, *args: Any, **kwargs: Any) -> Any:
        """Repeat each row."""
        result = super().batch_repeat_interleave(repeats, *args, **kwargs)  # type: ignore[misc]
        self._change_history(lambda kept: kept.repeat_interleave(repeats, dim=0))
        return result

    def crop(self, tokens_to_remove: int, *args: Any, **kwargs: Any) -> Any:
        """Take the last positions back: a negative number of them, or all beyond a positive length."""
        result = super().crop(tokens_to_remove, *args, **kwargs)  # type: ignore[misc]
        history: History | None = self.__dict__.get(HISTORY)
        if history is not None:
            length = tokens_to_remove if tokens_to_remove > 0 else history.length + tokens_to_remove
            self._change_history(lambda kept: kept[:, : max(0, length)])
        return result

    def _change_history(self, change: Callable[[Tensor], Tensor]) -> None:
        history: History | None = self.__dict__.get(HISTORY)
        if history is not None:
            self.__dict__[HISTORY] = history.map(change)


def filled_cache(given: Any, output: Any) -> Any:
    """The cache that a call of a decoder has filled, or None.

    Args:
        given: the one it was called with, or None.
        output: what it gave back, in which a cache is found that the host has made.
    """
    if given is not None:
        return given
    if isinstance(output, Mapping):
        return find_cache(output)
    values = output if isinstance(output, tuple) else ()
    return next((value for value in values if hasattr(value, "reorder_cache")), None)


def find_cache(arguments: Mapping[str, Any]) -> Any:
    """The cache among the arguments of a call, or None."""
    # By their own names alone: an output of transformers that is asked for an old one warns, whether it has it or not.
    held = {name: value for name, value in arguments.items() if name in CACHE_ARGUMENTS and value is not None}
    return next((held[name] for name in CACHE_ARGUMENTS if name in held), None)


def history_of(cache: Any, owner: int, batch: int) -> History | None:
    """What a cache remembers; None for one that holds nothing.

    Args:
        cache: a cache of transformers, or None.
        owner: number of the attachment that asks.
        batch: B of the call.

    Raises:
        HostError: if it holds positions that this attachment has not seen.
    """
    if cache is None:
        return None
    history: History | None = getattr(cache, HISTORY, None)
    length = held_by(cache)
    if history is None:
        if length is None and hasattr(cache, HISTORY):
            raise _unseen("a cache that went through a call with the memory off")
        if length:
            raise _unseen(f"a cache that holds {length} positions of which the memory has seen none")
        return None
    if history.owner != owner:
        raise _unseen("a cache that was filled under another attachment")
    if length is not None and length != history.length:
        raise _unseen(f"a cache that holds {length} positions of which the memory has seen {history.length}")
    if history.batch != batch:
        raise _unseen(f"{batch} rows of ids for a cache of {history.batch}")
    return history


def remember(cache: Any, history: History) -> None:
    """Write a history into a cache, from where it follows all that is done to the cache."""
    _remembering(cache).__dict__[HISTORY] = history


def leave_unseen(cache: Any) -> None:
    """Make sure that a cache is not used with the memory after a call without it, where its length would not tell.

    Args:
        cache: as it is after the call.
    """
    if hasattr(cache, "get_seq_length") and held_by(cache) is None:
        _remembering(cache).__dict__[HISTORY] = None


def held_by(cache: Any) -> int | None:
    """Positions that a cache holds; None where it does not count them, as recurrent states do not.

    Raises:
        HostError: for a cache that is none of transformers' own.
    """
    if not hasattr(cache, "get_seq_length"):
        if not cache:
            return 0
        raise HostError(
            f"a host with an attached memory was called with a cache of type {type(cache).__name__}, which does not say "
            "how much of which sequence it holds",
            expected="no cache, or one of transformers that does, such as DynamicCache or StaticCache",
            remedy="Pass such a cache or none, or switch the memory off",
        )
    try:
        length = int(cache.get_seq_length())
    except ValueError:
        return None
    # A first layer without positions says nothing of the others.
    return length or max((_held_by_layer(layer) for layer in getattr(cache, "layers", ())), default=0)


def _held_by_layer(layer: Any) -> int:
    return int(layer.get_seq_length()) if hasattr(layer, "get_seq_length") else 0


def _remembering(cache: Any) -> Any:
    """The same cache, of a class that passes on to a history what is done to it."""
    if not isinstance(cache, RememberingCache):
        # One class for all objects of a class, so that compiled graphs see one type.
        cache.__class__ = mixed(type(cache), RememberingCache)
    return cache


def _unseen(found: str) -> HostError:
    return HostError(
        f"a host with an attached memory was called with {found}",
        expected="a cache that is empty, or whose every position went through this host with the memory on",
        remedy="Start a new cache, or pass the whole sequence",
    )
