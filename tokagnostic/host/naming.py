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


def naming_boundaries(before: type[nn.Module]) -> type[nn.Module]:
    """A class to be mixed in before another, whose `forward` is that class's own under a longer signature.

    A class that does not hand on arguments by name keeps its signature.
    """
    forward: Any = before.forward
    signature = inspect.signature(forward)
    parameters = list(signature.parameters.values())
    hands_on = bool(parameters) and parameters[-1].kind is inspect.Parameter.VAR_KEYWORD
    if not hands_on:
        return type("NamesBoundaries", (nn.Module,), {})
    new = [name for name in BOUNDARY_ARGUMENTS if name not in signature.parameters]
    parameters[-1:-1] = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None) for name in new]

    @functools.wraps(forward)
    def named(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        return forward(self, *args, **kwargs)

    named.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return type("NamesBoundaries", (nn.Module,), {"forward": named})
