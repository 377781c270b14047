"""Where a memory is switched off: in blocks of one thread or asynchronous task, each of which ends when it is left.

A block that is a generator's may end after one that began later, or in another thread. So it is not the variable that
says whether a block is open, but the block itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokagnostic.host.attachment import Attachment


@dataclass(eq=False)
class Block:
    """A block within which an attachment is switched off."""

    attachment: Attachment | None
    """None once the block was left."""


_BLOCKS: ContextVar[tuple[Block, ...]] = ContextVar("tokagnostic_switched_off", default=())


def is_off(attachment: Attachment) -> bool:
    """Whether an attachment is switched off in this thread or task."""
    return any(block.attachment is attachment for block in _BLOCKS.get())


@contextmanager
def switched_off(attachment: Attachment) -> Iterator[None]:
    """Within it the attachment is off."""
    block = Block(attachment)
    _BLOCKS.set((*_open_blocks(), block))
    try:
        yield
    finally:
        block.attachment = None
        _BLOCKS.set(_open_blocks())


def _open_blocks() -> tuple[Block, ...]:
    return tuple(block for block in _BLOCKS.get() if block.attachment is not None)
