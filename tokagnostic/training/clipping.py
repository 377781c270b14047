"""Gradients, dense and sparse, to ones that are together no longer than asked."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import torch
import torch.distributed as dist
from torch import Tensor

from tokagnostic.training.table_optimizers import backend_for


@torch.no_grad()
def clip_global_norm(parameters: Iterable[Tensor], max_norm: float, shares: Collection[Tensor] = ()) -> Tensor:
    """Scale all gradients by one factor so that, as one vector, they are no longer than `max_norm`.

    The norm is that of a dense computation: a sparse gradient counts with the occurrences of each row added up, and is
    left so. `torch.nn.utils.clip_grad_norm_` refuses sparse gradients, and the norm of their values as they are takes
    several lookups of one row for several rows.

    Args:
        parameters: those whose gradients count.
        max_norm: the largest norm.
        shares: those among them of which each process has other rows: their squares are added up over the processes, all of
            which must call this. Gradients of the others are equal in all.

    Returns:
        The norm before, float [].
    """
    gradients: list[Tensor] = []
    shared: list[Tensor] = []
    for parameter in parameters:
        if parameter.grad is None:
            continue
        if parameter.grad.is_sparse:
            rows, values = backend_for(parameter).sum_by_row(parameter.grad)
            parameter.grad = torch.sparse_coo_tensor(
                rows.unsqueeze(0),
                values.to(parameter.dtype),
                parameter.shape,
                is_coalesced=True,
                check_invariants=False,
            )
        gradient = parameter.grad._values() if parameter.grad.is_sparse else parameter.grad
        (shared if any(parameter is share for share in shares) else gradients).append(gradient)
    norm = torch.nn.utils.get_total_norm(gradients)
    if shares:
        square = torch.nn.utils.get_total_norm(shared).to(next(iter(shares)).device, torch.float32).square()
        dist.all_reduce(square)
        norm = (norm.square() + square.to(norm.device)).sqrt()
    factor = (max_norm / (norm + 1e-6)).clamp(max=1.0)
    for gradient in gradients + shared:
        gradient.mul_(factor.to(gradient.device))
    return norm
