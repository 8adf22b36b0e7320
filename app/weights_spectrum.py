"""Singular values of a stored matrix, beside those of a random one of its size."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from app.weights import DELTA, factors, shape, widened
from fbt_core.checkpoints import Checkpoint
from fbt_core.checkpoints.faults import CheckpointError
from fbt_core.measures.rank import effective_rank, stable_rank
from fbt_core.measures.spectra import by_gram

QUICK = 3e10
"""Multiplications of a spectrum, about max(m, n) min(m, n)^2, up to which it is computed unasked: seconds."""

WIDEST = 8192
"""The smaller side of a matrix above which there is no spectrum: its Gram matrix alone would take half a gigabyte."""

SMALL = 1024
"""The smaller side up to which singular values come from the matrix itself where its Gram matrix has lost digits."""

DIGITS = 1e-4
"""The share by which any singular value may be off: more than a figure or a table shows."""


@dataclass(frozen=True)
class Spectrum:
    """Singular values (k,) from large to small, of an (m, n) matrix whose entries have the mean square ``power``."""

    values: np.ndarray
    shape: tuple[int, int]
    power: float
    note: str = ""

    @property
    def stable_rank(self) -> float:
        """sum sigma^2 / sigma_1^2, in [1, k]; 0 of a zero matrix."""
        return stable_rank(self.values)

    @property
    def effective_rank(self) -> float:
        """exp of the entropy of sigma / sum sigma (Roy & Vetterli 2007), in [1, k]; 0 of a zero matrix."""
        return effective_rank(self.values)

    @property
    def edges(self) -> tuple[float, float]:
        """Where the singular values of a random matrix of this size and power begin and end (Marchenko & Pastur)."""
        m, n = self.shape
        return tuple(float(np.sqrt(self.power) * edge) for edge in (abs(m**0.5 - n**0.5), m**0.5 + n**0.5))

    @property
    def beyond(self) -> int:
        """How many exceed that upper edge."""
        return int((self.values > self.edges[1]).sum())

    def random(self) -> np.ndarray:
        """The first k singular values that such a random matrix, of full rank, is expected to have: quantiles."""
        low, high = self.edges
        if not high > low:
            return np.full(len(self.values), high)
        grid = np.linspace(low, high, 4001)
        density = np.sqrt(np.clip((high**2 - grid**2) * (grid**2 - low**2), 0, None)) / np.maximum(grid, high * 1e-9)
        mass = np.cumsum(density) / density.sum()
        count = min(self.shape)
        return np.interp((np.arange(count)[::-1] + 0.5) / count, mass, grid)[: len(self.values)]


def spectrum(checkpoint: Checkpoint, name: str) -> Spectrum:
    """Singular values of a tensor as a matrix: what lies beyond the first axis is one axis.

    Raises ``CheckpointError`` for what has none: fewer than two axes, values that are not finite, a side too large.
    """
    if name.startswith(DELTA):
        down, up = (widened(factor) for factor in factors(checkpoint, name))
        values = torch.linalg.svdvals(torch.linalg.qr(up).R @ torch.linalg.qr(down.T).R.T)
        size = (up.shape[0], down.shape[1])
        note = f"B A of rank {down.shape[0]}, without the adapter's scale"
        return Spectrum(values.numpy(), size, float(values.square().sum()) / prod(size), note)
    tensor = checkpoint.tensors[name]
    if tensor.ndim < 2 or not tensor.numel() or min(tensor.shape[0], prod(tensor.shape[1:])) < 1:
        raise CheckpointError(f"a tensor of shape {tuple(tensor.shape)}", "a matrix", "Choose a tensor with two axes.")
    small = min(tensor.shape[0], prod(tensor.shape[1:]))
    if small > WIDEST:
        raise CheckpointError(f"a smaller side of {small:,}", f"at most {WIDEST:,}", "Look at its values instead.")
    matrix = widened(tensor.reshape(tensor.shape[0], -1))
    if not bool(torch.isfinite(matrix).all()):
        raise CheckpointError("values that are not finite", "finite values", "The table says how many there are.")
    matrix = matrix if matrix.shape[0] >= matrix.shape[1] else matrix.T
    exact = small <= SMALL and matrix.shape[0] <= 4 * SMALL
    values, note = _values(matrix, exact)
    size = (tensor.shape[0], prod(tensor.shape[1:]))
    return Spectrum(values, size, float(matrix.square().mean()), note)


def cost(checkpoint: Checkpoint, name: str) -> float:
    """Multiplications that its spectrum takes, about."""
    if name.startswith(DELTA):
        return 0.0
    size = shape(checkpoint, name)
    if len(size) < 2:
        return 0.0
    sides = sorted((size[0], prod(size[1:])))
    return float(sides[0]) ** 2 * sides[1]


def _values(matrix: Float[Tensor, "m n"], exact: bool) -> tuple[np.ndarray, str]:
    """Singular values and a note: by W^T W where that leaves each its ``DIGITS``, else from W itself if ``exact``."""
    values, off = by_gram(matrix.numpy())
    if (off <= DIGITS * values).all():
        return values, ""
    if exact:
        return torch.linalg.svdvals(matrix).numpy(), ""
    return values, "from W^T W: below 1e-8 of the largest they are rounding"
