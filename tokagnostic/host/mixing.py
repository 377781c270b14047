"""A class and what is mixed in before it to one class of both, whose objects can be pickled.

A class made on the spot has no address at which a pickle could find it. Its objects are therefore pickled as what it was
made of: the mixin and the class, each of which has one.
"""

from __future__ import annotations

import copyreg
from typing import Any

MADE_OF = "_tokagnostic_made_of"
"""Attribute of a class of both: the class that was there before, and the mixin."""


class Mixin:
    """Base of what is mixed in."""

    @classmethod
    def _members_beside(cls, before: type) -> dict[str, Any]:
        """What a class of both has beside what it inherits."""
        return {}

    def __reduce_ex__(self, protocol: Any) -> Any:
        """As the object of the class before would be pickled or copied, and of what its class was made."""
        reduced: Any = super().__reduce_ex__(max(protocol, 2))
        made_of = vars(type(self)).get(MADE_OF)
        if made_of is None or reduced[0] is not copyreg.__newobj__:  # type: ignore[attr-defined]
            return reduced
        return (_bare, (*made_of, *reduced[1][1:]), *reduced[2:])


_MIXED: dict[tuple[type, type[Mixin]], type] = {}


def mixed(before: type, mixin: type[Mixin]) -> type:
    """A class with a mixin in front, which keeps its name and its home: one for all its objects."""
    if (before, mixin) not in _MIXED:
        names = {name: getattr(before, name) for name in ("__module__", "__qualname__", "__doc__")}
        members = mixin._members_beside(before)
        _MIXED[before, mixin] = type(before.__name__, (mixin, before), {**names, **members, MADE_OF: (before, mixin)})
    return _MIXED[before, mixin]


def _bare(before: type, mixin: type[Mixin], *arguments: Any) -> Any:
    """An object of the class of both, as yet without what it holds."""
    changed = mixed(before, mixin)
    return changed.__new__(changed, *arguments)
