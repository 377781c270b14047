"""What those who call a host see of it: columns that trainers shall keep, and what its cache cannot serve.

Trainers drop the columns of a dataset that the model's `forward` does not name. Hosts hand on what they do not name
themselves, so the decoder, which the memory looks over, gets it. Continuous batching runs in a thread of its own, where
an error is only logged, so it is refused before that thread is there.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any

from torch import nn

from tokagnostic.errors import HostError
from tokagnostic.host.inputs import BOUNDARY_ARGUMENTS
from tokagnostic.host.mixing import Mixin


class AttachedHost(Mixin):
    """Mixed into the class of a host: its `forward` is that class's own under a longer signature.

    A class that does not hand on arguments by name keeps its signature.
    """

    @classmethod
    def _members_beside(cls, before: type) -> dict[str, Any]:
        members: dict[str, Any] = {}
        if hasattr(before, "init_continuous_batching"):
            members["init_continuous_batching"] = _refuse_continuous_batching
        forward: Any = before.forward  # type: ignore[attr-defined]
        signature = inspect.signature(forward)
        parameters = list(signature.parameters.values())
        if not (parameters and parameters[-1].kind is inspect.Parameter.VAR_KEYWORD):
            return members
        new = [name for name in BOUNDARY_ARGUMENTS if name not in signature.parameters]
        parameters[-1:-1] = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None) for name in new]

        @functools.wraps(forward)
        def named(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
            return forward(self, *args, **kwargs)

        named.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        return members | {"forward": named}


def _refuse_continuous_batching(self: nn.Module, *_: Any, **__: Any) -> None:
    raise HostError(
        "continuous batching, as of generate_batch(), of a host with an attached memory",
        expected="generate(): a paged cache does not say which sequence it holds",
        remedy="Call generate(), or remove() the memory first",
    )
