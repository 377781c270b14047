"""Context, key and value to the gate and the gated value on the CPU, in one pass and without gradients.

Where a call is one token, each operation of torch takes longer than its arithmetic; here are some fifteen in one. The law
is `MemoryLayer`'s; tests hold both equal.
"""

from __future__ import annotations

import numpy as np
import torch
from numba import carray, njit
from torch import Tensor

from tokagnostic.hashing.memory_numba import floats_at


def can_gate(context: Tensor, key: Tensor, value: Tensor, query_weight: Tensor, key_weight: Tensor) -> bool:
    """Whether numbers can be gated here: float32 on the CPU, of which no gradient and no graph is made.

    Shapes that torch would broadcast, or refuse, are left to it.
    """
    if torch.is_grad_enabled() or torch.compiler.is_compiling() or not context.is_cpu:
        return False
    if not context.shape == key.shape == value.shape:
        return False
    return torch.float32 == context.dtype == key.dtype == value.dtype == query_weight.dtype == key_weight.dtype


def gated(
    context: Tensor,
    key: Tensor,
    value: Tensor,
    query_weight: Tensor,
    key_weight: Tensor,
    epsilon: float,
    least_root: float | None,
) -> tuple[Tensor, Tensor]:
    """Gate values by how well their keys fit the context.

    Args:
        context: float32 [B, T, D].
        key: float32 [B, T, D].
        value: float32 [B, T, D].
        query_weight: of the context's norm, float32 [D].
        key_weight: of the key's norm, float32 [D].
        epsilon: of both norms.
        least_root: for a gate through a signed square root, the magnitude below which scores have its root; else None.

    Returns:
        gate: float32 [B, T, 1].
        delta: gate * value, float32 [B, T, D].
    """
    # Bound to a name, lest a contiguous copy be gone before it is read.
    inputs = [tensor.contiguous() for tensor in (context, key, value, query_weight, key_weight)]
    gate, delta = value.new_empty((*value.shape[:-1], 1)), torch.empty_like(inputs[2])
    _gate(
        *[tensor.data_ptr() for tensor in inputs],
        gate.data_ptr(),
        delta.data_ptr(),
        gate.numel(),
        value.shape[-1],
        epsilon,
        -1.0 if least_root is None else least_root,
    )
    return gate, delta


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def _gate(context, key, value, query_weight, key_weight, gate, delta, num_positions, width, epsilon, least_root):
    """Fill gate [B * T] and delta [B * T, D]; arrays come as addresses."""
    shape = (num_positions, width)
    contexts, keys = carray(floats_at(context), shape), carray(floats_at(key), shape)
    values, deltas = carray(floats_at(value), shape), carray(floats_at(delta), shape)
    query_weights, key_weights = carray(floats_at(query_weight), width), carray(floats_at(key_weight), width)
    gates = carray(floats_at(gate), num_positions)
    for i in range(num_positions):
        product = context_square = key_square = np.float32(0)
        for d in range(width):
            product += contexts[i, d] * keys[i, d] * (query_weights[d] * key_weights[d])
            context_square += contexts[i, d] * contexts[i, d]
            key_square += keys[i, d] * keys[i, d]
        # RMSNorm divides by sqrt(sum / D + epsilon): of the three roots of D, one is left.
        norms = np.sqrt(context_square + epsilon * width) * np.sqrt(key_square + epsilon * width)
        score = product * np.sqrt(np.float64(width)) / norms
        if least_root >= 0:
            score = np.sign(score) * np.sqrt(max(abs(score), least_root))
        opened = np.float32(1 / (1 + np.exp(-score)))
        gates[i] = opened
        for d in range(width):
            deltas[i, d] = opened * values[i, d]
