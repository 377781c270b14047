"""The rules for tables, row by row on dense gradients in double precision: the oracle of their optimizers."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor


class NaiveRule(ABC):
    """A table, and what an optimizer remembers of it."""

    def __init__(self, table: Tensor, lr: float) -> None:
        self.table = table.detach().double().clone()
        self.lr = lr
        self.counts = [0] * len(table)

    def step(self, rows: list[int], values: Tensor) -> None:
        """One update for occurrences of rows [L] with gradients [L, dim]; a dense gradient is made of them first."""
        gradient = torch.zeros_like(self.table)
        for row, value in zip(rows, values.double(), strict=True):
            gradient[row] += value
        for row in sorted(set(rows)):
            self.counts[row] += 1
            self.table[row] -= self.lr * self.direction(row, gradient[row])

    @abstractmethod
    def direction(self, row: int, gradient: Tensor) -> Tensor:
        """What a row moves against, per unit of the rate."""


class NaiveRowwiseRMSProp(NaiveRule):
    def __init__(self, table: Tensor, lr: float, beta: float = 0.99, eps: float = 1e-10) -> None:
        super().__init__(table, lr)
        self.beta, self.eps = beta, eps
        self.moments = torch.zeros(len(table), dtype=torch.float64)

    def direction(self, row: int, gradient: Tensor) -> Tensor:
        self.moments[row] = self.beta * self.moments[row] + (1 - self.beta) * (gradient**2).mean()
        corrected = float(self.moments[row]) / (1 - self.beta ** self.counts[row])
        return gradient / (math.sqrt(corrected) + self.eps)


class NaiveLazyAdam(NaiveRule):
    def __init__(
        self,
        table: Tensor,
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        moment: str = "full",
    ) -> None:
        super().__init__(table, lr)
        self.betas, self.eps, self.per_row = betas, eps, moment == "row"
        self.means = torch.zeros_like(self.table)
        self.moments = torch.zeros(len(table), 1 if self.per_row else table.shape[1], dtype=torch.float64)

    def direction(self, row: int, gradient: Tensor) -> Tensor:
        first, second = self.betas
        square = (gradient**2).mean() if self.per_row else gradient**2
        self.means[row] = first * self.means[row] + (1 - first) * gradient
        self.moments[row] = second * self.moments[row] + (1 - second) * square
        mean = self.means[row] / (1 - first ** self.counts[row])
        moment = self.moments[row] / (1 - second ** self.counts[row])
        return mean / (moment.sqrt() + self.eps)


def naive_global_norm(gradients: list[Tensor]) -> float:
    """The length of all gradients as one dense vector."""
    return math.sqrt(sum(float((gradient.to_dense().double() ** 2).sum()) for gradient in gradients))


def naive_noise(seed: int, row: int, count: int, column: int) -> int:
    """The 16 bits that the update `count` of a number adds before it cuts off its lower half."""
    key = _mix((seed ^ row) % 2**32)
    key = _mix((key + count) % 2**32)
    return _mix(key ^ (column * 0x9E3779B9) % 2**32) >> 16


def _mix(number: int) -> int:
    for _ in range(2):
        number = (number ^ (number >> 16)) * 0x45D9F3B % 2**32
    return number ^ (number >> 16)


def naive_rounded(number: float, noise: int) -> float:
    """An fp32 number to bf16, upwards in size if the noise says so."""
    bits = int(torch.tensor(number, dtype=torch.float32).view(torch.int32)) % 2**32
    bits = (bits + noise) // 2**16 % 2**16
    return float(torch.tensor(bits - 2**16 if bits >= 2**15 else bits, dtype=torch.int16).view(torch.bfloat16))
