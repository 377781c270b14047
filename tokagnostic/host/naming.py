"""A host's class to one whose signature names what tells document starts, so that trainers keep these columns.

Trainers drop the columns of a dataset that the model's `forward` does not name. Hosts hand on what they do not name
themselves, so the decoder, which the memory looks over, gets it.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any

from torch import nn

from tokagnostic.host.inputs import BOUNDARY_ARGUMENTS
from tokagnostic.host.mixing import Mixin


class NamesBoundaries(Mixin):
    """Mixed into the class of a host: its `forward` is that class's own under a longer signature.

    A class that does not hand on arguments by name keeps its signature.
    """

    @classmethod
    def _members_beside(cls, before: type) -> dict[str, Any]:
        forward: Any = before.forward  # type: ignore[attr-defined]
        signature = inspect.signature(forward)
        parameters = list(signature.parameters.values())
        hands_on = bool(parameters) and parameters[-1].kind is inspect.Parameter.VAR_KEYWORD
        if not hands_on:
            return {}
        new = [name for name in BOUNDARY_ARGUMENTS if name not in signature.parameters]
        parameters[-1:-1] = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None) for name in new]

        @functools.wraps(forward)
        def named(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
            return forward(self, *args, **kwargs)

        named.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        return {"forward": named}
