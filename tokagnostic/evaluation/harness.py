"""A host with a memory to a model of lm-evaluation-harness, the memory switched on or off."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch

from tokagnostic.errors import HostError, InvalidValueError, MissingExtraError
from tokagnostic.host import attachment_of
from tokagnostic.host.loading import load_attachment

try:
    from lm_eval.api.registry import register_model
    from lm_eval.models.huggingface import HFLM
except ImportError as error:
    raise MissingExtraError("lm_eval", extra="lm-eval", purpose="lm-evaluation-harness") from error

STATES = ("on", "off")


@register_model("tokagnostic")
class MemoryLM(HFLM):
    """The harness's own model of transformers, whose host reads a memory.

    Once this module is imported, the harness knows it as `tokagnostic`:
    `lm_eval.simple_evaluate(model="tokagnostic", model_args="pretrained=my-model,attachment=my-attachment,memory=off", ...)`.
    A host that has its memory already is given itself: `MemoryLM(model, tokenizer=tokenizer)`. With the memory off every
    result is that of the plain host.

    Args:
        pretrained: the host, or its folder or hub name; no code of its author is run.
        attachment: folder or hub name of a saved attachment; by default the host has a memory already.
        memory: "on" or "off", or True and False for the same.
        arguments: as the harness's `hf` model takes them.

    Raises:
        InvalidValueError: if `memory` is neither.
        HostError: if there is no memory, or two; besides, as `load_attachment`.
    """

    def __init__(
        self, pretrained: Any, attachment: str | Path | None = None, memory: str | bool = "on", **arguments: Any
    ) -> None:
        # YAML reads on and off as truth values.
        memory = STATES[not memory] if isinstance(memory, bool) else memory
        if memory not in STATES:
            raise InvalidValueError(f"memory = {memory!r}", expected="on or off", remedy="Name one of these states")
        super().__init__(pretrained, **{**arguments, "trust_remote_code": False})
        if attachment is not None:
            load_attachment(self.model, self.tokenizer, attachment)
        found = attachment_of(self.model)
        if found is None:
            raise HostError(
                f"{type(self.model).__name__} without a memory",
                expected="a host with an attached memory, or the folder or hub name of a saved attachment",
                remedy="Pass attachment=..., or evaluate the plain host with the harness's own model `hf`",
            )
        self.attachment = found
        self.memory = memory

    def _reading(self) -> AbstractContextManager[None]:
        return self.attachment.disabled() if self.memory == "off" else nullcontext()

    def _model_call(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        with self._reading():
            logits: torch.Tensor = super()._model_call(*args, **kwargs)
        return logits

    def _model_generate(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        with self._reading():
            ids: torch.Tensor = super()._model_generate(*args, **kwargs)
        return ids
