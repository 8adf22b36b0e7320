"""From the residual stream to a picture, near each point: a linear map by least squares on its neighbours.

A picture by UMAP has no formula. Near a point it is fitted by y = y0 + J (x - x0) on the point's nearest neighbours.
There are fewer neighbours than the residual stream has dimensions, so that J is sought on the neighbours' leading
principal directions alone, one for every three points. The fit is judged by R^2 on points left out one at a time (by
the leverages, so nothing is fitted twice): on the fitted points themselves any picture would look linear.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from fbt_core.cloud.neighbours import nearest

NEIGHBOURS = 24
"""Points to a fit, its own among them."""

PER_DIRECTION = 3
"""Points to one fitted direction."""

TRUSTED = 0.5
"""R^2 below which the map is not used."""

TILE = 256


@dataclass(frozen=True)
class Jacobians:
    """A linear map at every point of a cloud, and how well it predicts neighbours that it has not seen."""

    maps: Float[np.ndarray, "layer token dims width"]  # NaN where there is none
    r2: Float[np.ndarray, "layer token"]  # at most 1; negative where it is worse than the mean; NaN where undefined
    directions: int  # of the residual stream that a map sees; 0 where the picture is linear

    @property
    def trusted(self) -> Bool[np.ndarray, "layer token"]:
        """Where R^2 is at least ``TRUSTED``."""
        return np.nan_to_num(self.r2, nan=-1.0) >= TRUSTED


def linear(directions: Float[np.ndarray, "dims width"], finite: Bool[np.ndarray, "layer token"]) -> Jacobians:
    """The one map of a linear picture, exact, at every point."""
    maps = np.broadcast_to(directions, (*finite.shape, *directions.shape)).copy()
    maps[~finite] = np.nan
    return Jacobians(maps, np.where(finite, 1.0, np.nan), 0)


def jacobians(
    points: Float[np.ndarray, "layer token width"],
    positions: Float[np.ndarray, "layer token dims"],
    count: int = NEIGHBOURS,
) -> Jacobians:
    """The local maps of a picture ``positions`` of ``points``, over the neighbours among all layers' points.

    Points that are not finite in either get NaN. So do all where fewer than 8 are left: no fit could be judged.
    """
    finite = np.isfinite(points).all(-1) & np.isfinite(positions).all(-1)
    maps = np.full((*finite.shape, positions.shape[-1], points.shape[-1]), np.nan)
    r2 = np.full(finite.shape, np.nan)
    x, y = (torch.from_numpy(values[finite].astype(np.float64)) for values in (points, positions))
    count = min(count, len(x))
    rank = min(count // PER_DIRECTION, points.shape[-1])
    if count < 8:
        return Jacobians(maps, r2, rank)
    index = torch.from_numpy(nearest(x.numpy(), count)[0])
    fitted = [_fit(x[rows], y[rows], rank) for rows in index.split(TILE)]
    maps[finite] = torch.cat([found for found, _ in fitted]).numpy()
    r2[finite] = torch.cat([judged for _, judged in fitted]).numpy()
    return Jacobians(maps, r2, rank)


def _fit(
    x: Float[Tensor, "point near width"], y: Float[Tensor, "point near dims"], rank: int
) -> tuple[Float[Tensor, "point dims width"], Float[Tensor, " point"]]:
    """J and its R^2 on points left out. With x = U S V^T the fit on the leading directions is J = y^T U S^{-1} V^T."""
    near = x.shape[1]
    x, y = x - x.mean(1, keepdim=True), y - y.mean(1, keepdim=True)
    squares, left = torch.linalg.eigh(x @ x.mT)
    squares, left = squares.flip(-1)[:, :rank].clamp_min(0), left.flip(-1)[..., :rank]
    there = squares > 1e-12 * squares[:, :1].clamp_min(1e-300)
    left = left * there.unsqueeze(1)
    along = left.mT @ y  # (point, rank, dims)
    inverse = torch.where(there, 1 / squares.clamp_min(1e-300), 0.0)
    maps = (along * inverse.unsqueeze(-1)).mT @ left.mT @ x
    leverage = left.square().sum(-1) + 1 / near
    missed = (y - left @ along).square().sum(-1) / (1 - leverage).clamp_min(1e-12).square()
    spread = y.square().sum(-1) * (near / (near - 1)) ** 2  # a mean that has not seen the point either
    total = spread.sum(-1)
    return maps, torch.where(total > 0, 1 - missed.sum(-1) / total, float("nan"))


def picture_axes(
    maps: Float[np.ndarray, "token dims width"], blocks: Float[Tensor, "block token dim rank"], dual: bool = False
) -> tuple[Float[np.ndarray, "token dims dims"], Float[np.ndarray, "token dims dims"]]:
    """Semi-axes, as columns, longest first, of the unit ball of g as the picture sees it, and of the ball of g = I.

    g = I + blockdiag(U U^T). The image of {v: v^T g v <= 1} under J is {y: y^T (J g^{-1} J^T)^{-1} y <= 1}, and that of
    the dual ball has J g J^T there. With W = J U these are J J^T - W (I + U^T U)^{-1} W^T and J J^T + W W^T: nothing of
    the size of g is formed. NaN where a number is not finite.
    """
    J = torch.from_numpy(np.ascontiguousarray(maps, np.float64))
    U = blocks.detach().to("cpu", torch.float64)
    J_blocks = J.unflatten(-1, (U.shape[0], U.shape[2])).permute(2, 0, 1, 3)  # block token dims dim
    W = J_blocks @ U
    plain = J @ J.mT
    if dual:
        full = plain + (W @ W.mT).sum(0)
    else:
        kernel = torch.eye(U.shape[-1], dtype=torch.float64) + U.mT @ U
        full = plain - (W @ torch.linalg.solve(kernel, W.mT)).sum(0) if U.shape[-1] else plain
    return _axes(full), _axes(plain)


def _axes(squares: Float[Tensor, "token dims dims"]) -> Float[np.ndarray, "token dims dims"]:
    """Columns sqrt(eigenvalue) eigenvector of symmetric matrices, longest first."""
    good = squares.isfinite().all(-1).all(-1)
    found = torch.full_like(squares, float("nan"))
    values, vectors = torch.linalg.eigh((squares[good] + squares[good].mT) / 2)
    found[good] = (vectors * values.clamp_min(0).sqrt().unsqueeze(-2)).flip(-1)
    return found.numpy()
