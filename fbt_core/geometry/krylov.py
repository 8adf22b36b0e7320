"""The leading part of many positive matrices at once, from products with them: block Krylov with Rayleigh-Ritz.

Musco & Musco 2015 (arXiv 1504.05477). All blocks together span the space in which the matrix is diagonalised, so a few
blocks do what plain power steps need dozens of products for.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

SPARE, STEPS = 2, 4
"""Block Krylov: vectors in a block beyond the rank, and blocks after the first. On SmolLM2-135M, float32, 512 of 49,152
tokens, U U^T is then within 0.2 % in the mean and 3 % for the worst token; each step more is five times closer."""


def leading_factor(
    left: Callable[[Tensor], Tensor],
    right: Callable[[Tensor], Tensor],
    like: Float[Tensor, "token width"],
    rank: int,
    seed: int = 0,
) -> tuple[Float[Tensor, "token width rank"], Float[Tensor, " token"]]:
    """U with U U^T the best rank-r part of M M^T, and lambda_{r+1} / lambda_1, of one matrix M a token.

    ``left`` takes rows y (token, n, width) to M^T y (token, n, anything), ``right`` takes those to M z. ``like`` says
    how many tokens there are, how wide, in which dtype; columns of U beyond its width are zero. Deterministic.
    """
    x, width = like, like.shape[1]
    block = rank + SPARE
    if block * (STEPS + 1) >= width:  # the blocks would fill the space: take all of it at once
        block = width
    start = torch.randn(block, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(x)
    basis = torch.linalg.qr(start.mT).Q.mT.expand(len(x), -1, -1)
    images = left(basis)
    latest = images
    for _ in range(STEPS):
        if block == width:
            break
        new = _orthonormal(right(latest), basis)
        latest = left(new)
        basis, images = torch.cat([basis, new], 1), torch.cat([images, latest], 1)
    values, vectors = torch.linalg.eigh((images @ images.mT).double())  # ascending, of G within the basis
    values, vectors = values.flip(-1).clamp_min(0), vectors.flip(-1)
    kept = min(rank, basis.shape[1])
    U = (basis.mT @ vectors[..., :kept].to(x)) * values[:, None, :kept].sqrt().to(x)
    largest = values[:, 0].clamp_min(torch.finfo(torch.float64).tiny)
    rest = values[:, rank] / largest if values.shape[1] > rank else torch.zeros_like(largest)
    return torch.nn.functional.pad(U, (0, rank - kept)), rest.to(x)


def _orthonormal(rows: Float[Tensor, "token n width"], basis: Float[Tensor, "token m width"]) -> Tensor:
    """Orthonormal rows that complete the basis by the span of ``rows``; zero rows where only rounding is left."""
    size = rows.square().sum((1, 2)).sqrt()[:, None]
    for _ in range(2):  # the second time takes off what rounding left of the first
        rows = rows - (rows @ basis.mT) @ basis
    Q, R = torch.linalg.qr(rows.mT)
    new = R.diagonal(dim1=-2, dim2=-1).abs() > 100 * torch.finfo(rows.dtype).eps * size
    return Q.mT * new.unsqueeze(-1)
