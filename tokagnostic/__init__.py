"""N-gram memory for language models that does not depend on the tokenizer.

Names are imported on first use, so that `import tokagnostic` is instant and brings no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_HOME = {
    "TokagnosticError": "tokagnostic.errors",
    "Corpus": "tokagnostic.corpus",
    "CorpusConfig": "tokagnostic.corpus",
    "TokenBytes": "tokagnostic.tokens",
    "TextEncoder": "tokagnostic.tokens.encoder",
    "load_tokenizer": "tokagnostic.tokens.sources",
    "HashCache": "tokagnostic.hashing",
    "NgramHasher": "tokagnostic.hashing",
    "MemoryConfig": "tokagnostic.memory",
    "JointConfig": "tokagnostic.memory",
    "XorConfig": "tokagnostic.memory",
    "NgramMemory": "tokagnostic.memory",
    "memory_kinds": "tokagnostic.memory",
    "save_memory": "tokagnostic.memory.file",
    "load_memory": "tokagnostic.memory.file",
    "attach": "tokagnostic.host",
    "Attachment": "tokagnostic.host",
    "load_attachment": "tokagnostic.host.loading",
    "bits_per_byte": "tokagnostic.evaluation.bits_per_byte",
    "ngram_overlap": "tokagnostic.evaluation.overlap.counting",
    "coverage": "tokagnostic.evaluation.coverage",
    "KeySet": "tokagnostic.evaluation.key_set",
    "PretrainConfig": "tokagnostic.training.config",
    "pretrain": "tokagnostic.training.pretrain",
    "AttachmentCallback": "tokagnostic.training.trainer_callback",
    "memory_optimizer": "tokagnostic.training.memory_optimizer",
}
__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
