"""A description of a host to the model: a fresh Llama of the given sizes, or one that transformers loads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from tokagnostic.errors import InvalidValueError, MissingExtraError, SourceError
from tokagnostic.tokens.packages import SCHEME, package_path
from tokagnostic.training.checkpoint import FILE_ERRORS
from tokagnostic.training.config import HostConfig


def fresh_llama(config: HostConfig, num_ids: int, context: int, seed: int) -> Any:
    """A Llama with random parameters, whose embeddings are tied.

    Args:
        config: its sizes.
        num_ids: embedding rows.
        context: largest number of positions.
        seed: of the parameters; the global generator is left as it was.

    Raises:
        InvalidValueError: if the heads do not divide the width into even parts.
    """
    from transformers import LlamaConfig, LlamaForCausalLM

    if config.width % (2 * config.num_heads) or config.num_layers < 1:
        raise InvalidValueError(
            f"a host of width {config.width} with {config.num_heads} heads and {config.num_layers} layers",
            expected="an even width per head and at least one layer",
            remedy="Choose a width that is a multiple of twice the number of heads",
        )
    sizes = LlamaConfig(
        vocab_size=num_ids,
        hidden_size=config.width,
        # Llama's own ratio of 8/3, rounded to a multiple of 16.
        intermediate_size=-(-8 * config.width // 48) * 16,
        num_hidden_layers=config.num_layers,
        num_attention_heads=config.num_heads,
        num_key_value_heads=config.num_heads,
        max_position_embeddings=context,
        tie_word_embeddings=True,
        # Llama's own special ids are ordinary tokens here, at which generation would stop.
        bos_token_id=None,
        eos_token_id=None,
    )
    with seeded(seed):
        return LlamaForCausalLM(sizes)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Within it the global generator starts from the seed; outside, it goes on as if nothing had been."""
    devices = [torch.cuda.current_device()] if torch.cuda.is_available() else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        yield


def load_host(spec: str) -> Any:
    """A causal language model, in the dtype it was stored in, running no code of its author.

    Args:
        spec: a folder; a .gguf file, or a folder that holds one and no config.json, whose quantised numbers become
            float32; `package:NAME` or `package:NAME/FILE`, likewise in the folder of an installed package; or a name
            on the hub.

    Raises:
        SourceError: if there is no such model or it cannot be loaded.
        MissingExtraError: if it is a GGUF file and what reads these is not installed.
    """
    import transformers

    auto = transformers.AutoModelForCausalLM
    path = str(package_path(spec.removeprefix(SCHEME))) if spec.startswith(SCHEME) else spec
    gguf_file = _gguf_file_of(Path(path))
    try:
        if gguf_file is None:
            return auto.from_pretrained(path, trust_remote_code=False)
        # Versions that can compute on quantised blocks are told not to; earlier ones have no such setting.
        unpacking = {"quantization_config": transformers.GgufConfig(dequantize=True)} if _computes_on_blocks() else {}
        model = auto.from_pretrained(
            str(gguf_file.parent), gguf_file=gguf_file.name, trust_remote_code=False, **unpacking
        )
    except (*FILE_ERRORS, ValueError, KeyError, TypeError, RuntimeError, ImportError) as error:
        raise SourceError(
            f"model {spec!r} cannot be loaded ({type(error).__name__}: {' '.join(str(error).split())[:300]})",
            expected="a folder, a .gguf file or a hub name of a causal language model that transformers knows",
            remedy="Check the name and the connection; code from a hub is never run",
        ) from error
    # Nothing of it is quantised any more: what says so would keep it from being saved, and its copy from being loaded.
    vars(model.config).pop("quantization_config", None)
    for name in ("hf_quantizer", "quantization_method"):
        vars(model).pop(name, None)
    return model


def _computes_on_blocks() -> bool:
    import transformers

    return hasattr(transformers, "GgufConfig")


def _gguf_file_of(path: Path) -> Path | None:
    """The GGUF file that a path means, or None if it means none.

    Raises:
        SourceError: if it is a folder with several of them and nothing that chooses.
        MissingExtraError: if there is one and what reads it is not installed.
    """
    if path.is_dir() and not (path / "config.json").exists():
        files = sorted(path.glob("*.gguf"))
    else:
        files = [path] if path.is_file() and path.suffix == ".gguf" else []
    if len(files) > 1:
        raise SourceError(
            f"{path} holds {', '.join(file.name for file in files)}",
            expected="one model per folder",
            remedy="Name the file itself",
        )
    if files and find_spec("gguf") is None:
        raise MissingExtraError("gguf", extra="gguf", purpose=f"the model {files[0]}")
    return files[0] if files else None
