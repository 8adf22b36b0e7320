"""The torsion proxy T = L R^T - R L^T of item 7: antisymmetric, of rank at most 2 r', never made dense."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor


def torsion_norm(
    left: Float[Tensor, "*batch dim torsion"], right: Float[Tensor, "*batch dim torsion"]
) -> Float[Tensor, "*batch"]:
    """||L R^T - R L^T||_F >= 0 at a cost of O(d r'^2) a token, from Gram matrices.

    ||T||^2 = 2 tr(L^T L R^T R) - 2 tr(L^T R L^T R) subtracts nearly equal numbers when T is small beside L and R. So R
    is replaced by R - L M first, which leaves T as it is for any symmetric M; the M taken here, the symmetric part of
    (L^T L)^{-1} L^T R, makes that remainder 0 wherever T is 0. Exact to rounding where L has full column rank, to its
    square root (1e-8 of ||L|| ||R|| in float64) where it has not.
    """
    gram = left.mT @ left
    eye = torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)
    size = gram.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None]
    # any M is exact, so a ridge of a rounding error (and 1 where L = 0) costs nothing
    ridge = torch.where(size > 0, size * torch.finfo(gram.dtype).eps, torch.ones_like(size))
    M = torch.linalg.solve(gram + ridge * eye, left.mT @ right)
    rest = right - left @ (M + M.mT) / 2
    cross = left.mT @ rest
    square = (gram * (rest.mT @ rest)).sum((-2, -1)) - (cross * cross.mT).sum((-2, -1))
    return (2 * square).clamp_min(0).sqrt()
