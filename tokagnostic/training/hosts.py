"""A description of a host to the model: a fresh Llama of the given sizes, or one that transformers loads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from tokagnostic.errors import InvalidValueError, SourceError
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


def load_host(path: str) -> Any:
    """A causal language model from a folder or the hub, in the dtype it was stored in, running no code of its author.

    Raises:
        SourceError: if there is no such model or it cannot be loaded.
    """
    from transformers import AutoModelForCausalLM

    try:
        return AutoModelForCausalLM.from_pretrained(path, trust_remote_code=False)
    except (*FILE_ERRORS, ValueError, KeyError, TypeError, RuntimeError, ImportError) as error:
        raise SourceError(
            f"model {path!r} cannot be loaded ({type(error).__name__}: {' '.join(str(error).split())[:300]})",
            expected="a folder or hub name of a causal language model that transformers knows",
            remedy="Check the name and the connection; code from a hub is never run",
        ) from error
