"""A host's call to the same call with a reading open, and its layers to layers that read.

How the read gets into the host. The decoder and the attached layers keep their identity, but become instances of a
subclass, made on the spot, that differs in `__call__` alone. That was chosen over hooks and over replaced modules because

- `try/finally` around the call is the only thing that ends it for every exception, `KeyboardInterrupt` included; a
  forward hook, even one that is always called, is not run for that one;
- parameter names, `isinstance`, class names and the registries of transformers that go by them stay as they are;
- wrappers call the module, or replace its `forward` (Accelerate, activation checkpointing): `__call__` stands outside
  `forward`, so that a recomputation in backward repeats the layer with what was read and does not read again;
- a compiled graph is guarded by the type of its modules, not by their hooks, so attaching and removing are seen. The
  `__call__` itself and the bookkeeping are left out of graphs, which end there; the host's own forwards are compiled.

What belongs to one call, the features above all, is in a context variable from the moment the decoder is entered until it
is left. It is not on any module, so calls may nest, fail, or run in several threads.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import nn

from tokagnostic.errors import HostError
from tokagnostic.host.caches import filled_cache, find_cache, leave_unseen
from tokagnostic.host.inputs import OUR_ARGUMENTS
from tokagnostic.host.lookup import look_up
from tokagnostic.host.mixing import Mixin, mixed
from tokagnostic.host.reading import Reading
from tokagnostic.host.refusals import data_parallel_wrapper

if TYPE_CHECKING:
    from tokagnostic.host.attachment import Attachment

Function = TypeVar("Function", bound=Callable[..., Any])

PLACE = "_tokagnostic_place"
"""Attribute of a changed module: its attachment, and for a layer which of the attached layers it is."""
_CURRENT: ContextVar[Reading | None] = ContextVar("tokagnostic_reading", default=None)


@cache
def uncompiled(function: Function) -> Function:
    """A function that is run as it is wherever a host is compiled: what it does is not for graphs.

    Made on first use, for it loads the compiler.
    """
    disabled: Function = torch.compiler.disable(function)
    return disabled


class Calling(Mixin, nn.Module):
    """Base of what stands around a module's call."""

    @classmethod
    def _members_beside(cls, before: type) -> dict[str, Any]:
        # What it calls in turn is compiled where the host is.
        return {"__call__": torch.compiler.disable(cls.__call__, recursive=False)}


class ReadingDecoder(Calling):
    """Mixed into the class of a host's decoder: looks up what its layers will read."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the decoder with a reading open."""
        attachment: Attachment = self.__dict__[PLACE][0]
        if attachment.off:
            output = super().__call__(*args, **_known_to_hosts(kwargs))
            uncompiled(leave_unseen)(filled_cache(find_cache(attachment.by_name(args, kwargs)), output))
            return output
        reading = uncompiled(look_up)(attachment, args, kwargs)
        kwargs = _known_to_hosts(kwargs)
        token = _CURRENT.set(reading)
        try:
            output = super().__call__(*args, **kwargs)
        finally:
            _CURRENT.reset(token)
        uncompiled(Reading.finish)(reading, output)
        return output


def _known_to_hosts(arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments without those that are for the memory alone."""
    return {name: value for name, value in arguments.items() if name not in OUR_ARGUMENTS}


class ReadingLayer(Calling):
    """Mixed into the class of an attached decoder layer: adds the read to the hidden state that enters it."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the layer with the read added."""
        attachment: Attachment
        attachment, slot = self.__dict__[PLACE]
        if attachment.off:
            if data_parallel_wrapper() is None:
                return super().__call__(*args, **kwargs)
            # It waits for the gradient of every parameter, and refuses its next call if one got none.
            args, kwargs = _with_hidden(args, kwargs, uncompiled(attachment.layer(slot).add_nothing))
            return super().__call__(*args, **kwargs)
        reading = _CURRENT.get()
        if reading is None or reading.owner is not attachment:
            raise HostError(
                f"layer {attachment.layers[slot]} was run outside a call of the decoder it belongs to",
                expected="a call of the whole host, which looks up what the layer reads",
                remedy="Call the host, or switch the memory off with attachment.disabled()",
            )
        add = uncompiled(Reading.add_to)
        args, kwargs = _with_hidden(args, kwargs, lambda hidden: add(reading, hidden, slot))
        return super().__call__(*args, **kwargs)


def _with_hidden(
    args: tuple[Any, ...], kwargs: dict[str, Any], change: Callable[[Any], Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """A layer's arguments with another hidden state."""
    if args:
        return (change(args[0]), *args[1:]), kwargs
    return args, {**kwargs, "hidden_states": change(kwargs.get("hidden_states"))}


@dataclass(frozen=True, eq=False)
class ChangedClass:
    """A module whose class was changed, and how to change it back."""

    module: nn.Module
    before: type[nn.Module]
    mixin: type[Mixin]

    @property
    def intact(self) -> bool:
        """Whether nobody has changed the class since."""
        return type(self.module) is mixed(self.before, self.mixin)

    def revert(self) -> None:
        """Give the module its own class back."""
        self.module.__class__ = self.before
        del self.module.__dict__[PLACE]


def change_class(module: nn.Module, mixin: type[Mixin], place: tuple[Attachment, int | None]) -> ChangedClass:
    """Put a mixin in front of a module's class, which keeps its name and its home."""
    before = type(module)
    module.__dict__[PLACE] = place
    module.__class__ = mixed(before, mixin)
    return ChangedClass(module, before, mixin)
