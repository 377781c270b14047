"""One call of a host to the reads of its attached layers.

How the read gets into the host. The decoder and the attached layers keep their identity, but become instances of a
subclass, made on the spot, that differs in `__call__` alone. That was chosen over hooks and over replaced modules because

- `try/finally` around the call is the only thing that ends it for every exception, `KeyboardInterrupt` included; a
  forward hook, even one that is always called, is not run for that one;
- parameter names, `isinstance`, class names and the registries of transformers that go by them stay as they are;
- wrappers call the module, or replace its `forward` (Accelerate, activation checkpointing): `__call__` stands outside
  `forward`, so that a recomputation in backward repeats the layer with what was read and does not read again;
- a compiled graph is guarded by the type of its modules, not by their hooks, so attaching and removing are seen.

What belongs to one call, the features above all, is in a context variable from the moment the decoder is entered until it
is left. It is not on any module, so calls may nest, fail, or run in several threads.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from tokagnostic.errors import HostError
from tokagnostic.host.history import History, find_cache, held_by, remember
from tokagnostic.host.short_conv import Surroundings

if TYPE_CHECKING:
    from tokagnostic.host.attachment import Attachment

PLACE = "_tokagnostic_place"
"""Attribute of a changed module: its attachment, and for a layer which of the attached layers it is."""


@dataclass(eq=False)
class Reading:
    """What one call of a host reads."""

    owner: Attachment
    features: list[Tensor]
    """For each attached layer, float [B, T, E]; layers that share a table share a tensor."""
    has_window: Tensor
    """True where there was anything to read, bool [B, T]."""
    cache: Any
    """The call's cache, or None; the host may make one."""
    history: History | None
    """What the cache held before the call; None if nothing."""
    later: History
    """The positions of the call."""
    conv_inputs: dict[int, Tensor] = field(default_factory=dict)
    """What the short convolution of each layer was given, float [B, T, D]."""
    num_read: list[int] = field(init=False)
    """Positions that each attached layer has read."""

    def __post_init__(self) -> None:
        self.num_read = [0] * len(self.features)

    def surroundings(self, layer: int, reach: int) -> Surroundings:
        """Documents of the call's positions and of `reach` before them, and what the layer's convolution was given there."""
        later = self.later
        if self.history is None:
            return Surroundings.of(later.input_ids, later.starts)
        first = max(0, self.history.length - reach)
        return Surroundings.of(
            torch.cat((self.history.input_ids[:, first:], later.input_ids), dim=1),
            torch.cat((self.history.starts[:, first:], later.starts), dim=1),
            self.history.conv_inputs[layer][:, first:],
        )

    def remember(self, output: Any) -> None:
        """Write the call's positions into its cache, if the host has put them there too.

        Args:
            output: what the decoder gave back; a cache that the host has made is found in it.
        """
        cache = self.cache if self.cache is not None else _cache_in(output)
        if cache is None:
            return
        later = replace(self.later, conv_inputs=self.conv_inputs)
        history = later if self.history is None else self.history.extended(later)
        if held_by(cache) in (None, history.length):
            remember(cache, history)

    def check_complete(self) -> None:
        """Make sure that the memory was not silently inactive.

        Raises:
            HostError: if a layer has not read exactly the positions of the call.
        """
        num_positions = self.has_window.numel()
        for layer, num_read in zip(self.owner.layers, self.num_read, strict=True):
            if num_read != num_positions:
                raise HostError(
                    f"layer {layer} read the memory at {num_read} positions in a call of {num_positions}",
                    expected="one read at every position",
                    remedy="Attach to layers that the host runs once per call, or use attachment.disabled()",
                )


_CURRENT: ContextVar[Reading | None] = ContextVar("tokagnostic_reading", default=None)


class ReadingDecoder(nn.Module):
    """Mixed into the class of a host's decoder: looks up what its layers will read."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the decoder with a reading open."""
        attachment: Attachment = self.__dict__[PLACE][0]
        if attachment.off:
            return super().__call__(*args, **kwargs)
        reading = attachment.begin_reading(args, kwargs)
        token = _CURRENT.set(reading)
        try:
            output = super().__call__(*args, **kwargs)
        finally:
            _CURRENT.reset(token)
        reading.check_complete()
        reading.remember(output)
        return output


def _cache_in(output: Any) -> Any:
    """The cache in what a decoder gives back, or None."""
    if isinstance(output, Mapping):
        return find_cache(output)
    values = output if isinstance(output, tuple) else ()
    return next((value for value in values if hasattr(value, "reorder_cache")), None)


class ReadingLayer(nn.Module):
    """Mixed into the class of an attached decoder layer: adds the read to the hidden state that enters it."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the layer with the read added."""
        attachment: Attachment
        attachment, slot = self.__dict__[PLACE]
        if attachment.off:
            return super().__call__(*args, **kwargs)
        reading = _CURRENT.get()
        if reading is None or reading.owner is not attachment:
            raise HostError(
                f"layer {attachment.layers[slot]} was run outside a call of the decoder it belongs to",
                expected="a call of the whole host, which looks up what the layer reads",
                remedy="Call the host, or switch the memory off with attachment.disabled()",
            )
        if args:
            args = (attachment.add_read(reading, slot, args[0]), *args[1:])
        else:
            kwargs["hidden_states"] = attachment.add_read(reading, slot, kwargs.get("hidden_states"))
        return super().__call__(*args, **kwargs)


@dataclass(frozen=True, eq=False)
class ChangedClass:
    """A module whose class was changed, and how to change it back."""

    module: nn.Module
    before: type[nn.Module]
    changed: type[nn.Module]

    @property
    def intact(self) -> bool:
        """Whether nobody has changed the class since."""
        return type(self.module) is self.changed

    def revert(self) -> None:
        """Give the module its own class back."""
        self.module.__class__ = self.before
        del self.module.__dict__[PLACE]


def change_class(module: nn.Module, mixin: type[nn.Module], place: tuple[Attachment, int | None]) -> ChangedClass:
    """Put a mixin in front of a module's class, which keeps its name and its home."""
    before = type(module)
    names = {"__module__": before.__module__, "__qualname__": before.__qualname__, "__doc__": before.__doc__}
    changed = type(before.__name__, (mixin, before), names)
    module.__dict__[PLACE] = place
    module.__class__ = changed
    return ChangedClass(module, before, changed)
