"""Sectional curvature over many planes at many points: random ones, and the largest and the smallest to be found.

Random planes are uniform over the planes of a g-orthonormal frame, and the same in every point's frame, so that
points differ by their curvature and not by their luck. All is in float64; memory is bounded by chunks of points.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float, Float64
from torch import Tensor
from torch.func import vmap

from fbt_core.geometry.curvature import TENSOR_DIM, riemann_frame, scalar_and_rounding, sectional_planes
from fbt_core.geometry.frame import frame
from fbt_core.geometry.function import MetricFunction

CHUNK_NUMBERS = 1 << 20
"""In the largest tensor of a chunk of points: 8 MB, a few times over. More is no faster."""

STARTS, ROUNDS = 2, 6
"""Planes from which an extreme is sought, and how often one of a plane's vectors is replaced by the best there is."""

Points = Float64[Tensor, "token space"]
Planes = Float64[Tensor, "plane dim"]


def random_planes(dim: int, planes: int, seed: int, like: Tensor) -> tuple[Planes, Planes]:
    """Orthonormal pairs, uniform over all planes of R^d. The same on every device."""
    if dim < 2:
        raise ValueError(f"got dimension {dim}, expected at least 2: a line has no planes")
    drawn = torch.randn(planes, dim, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    pairs = torch.linalg.qr(drawn)[0].to(like.device)
    return pairs[..., 0], pairs[..., 1]


def in_chunks(function: Callable[..., Tensor], numbers: int, *points: Tensor) -> Tensor:
    """``function`` of each point, for as many at a time as ``numbers`` a point allow."""
    return vmap(function, chunk_size=max(1, CHUNK_NUMBERS // max(numbers, 1)))(*points)


def plane_numbers(g: MetricFunction, planes: int) -> int:
    """About what one point needs for its planes."""
    return 6 * planes * g.dim * max(g.dim, 8)


def sectional_sampled(
    g: MetricFunction, points: Points, planes: int = 64, seed: int = 0
) -> Float64[Tensor, "token plane"]:
    """K of random planes at each point, by directional derivatives: nothing grows like d^4. NaN where g is not positive
    definite. Raises ``ValueError`` for d < 2."""
    u, v = random_planes(g.dim, planes, seed, points)

    def one(x: Tensor) -> Tensor:
        F = frame(g, x)
        return sectional_planes(g, x, u @ F.mT, v @ F.mT)

    return in_chunks(one, plane_numbers(g, planes), points)


def scalar_sampled(
    g: MetricFunction, points: Points, planes: int = 64, seed: int = 0
) -> tuple[Float64[Tensor, " token"], Float64[Tensor, " token"]]:
    """S = d (d - 1) E[K] over random planes, and its standard error (of the sampling alone; NaN for one plane)."""
    return mean_and_error(sectional_sampled(g, points, planes, seed), g.dim)


def mean_and_error(
    K: Float64[Tensor, "token plane"], dim: int
) -> tuple[Float64[Tensor, " token"], Float64[Tensor, " token"]]:
    """The scalar curvature that random planes give, and its standard error."""
    pairs = dim * (dim - 1)
    spread = K.std(-1) if K.shape[-1] > 1 else torch.full_like(K[..., 0], torch.nan)
    return pairs * K.mean(-1), pairs * spread / K.shape[-1] ** 0.5


def scalar_exact(g: MetricFunction, points: Points) -> tuple[Float64[Tensor, " token"], Float64[Tensor, " token"]]:
    """S at each point and the size of its rounding error, as ``scalar_and_rounding`` has it."""
    if not len(points):
        return points[:, 0], points[:, 0]
    outputs = g.dim**2 if g.factor is None else g.dim * g.factor(points[0]).shape[-1]
    values = in_chunks(lambda x: torch.stack(scalar_and_rounding(g, x)), max(outputs**2, g.dim**3), points)
    return values[:, 0], values[:, 1]


def extreme_sectional(
    g: MetricFunction, points: Points, planes: int = 64, seed: int = 0
) -> tuple[Float64[Tensor, " token"], Float64[Tensor, " token"]]:
    """The smallest and the largest K found at each point: bounds from inside, never beyond the true extremes.

    Of random planes; for d <= ``TENSOR_DIM`` gone on from the best of them (``extremes``).
    """
    if g.dim > TENSOR_DIM:
        K = sectional_sampled(g, points, planes, seed)
        return K.amin(-1), K.amax(-1)
    u, v = random_planes(g.dim, planes, seed, points)
    u, v = u.expand(len(points), -1, -1), v.expand(len(points), -1, -1)
    return extremes(by_outer_slots(tensors(g, points)), u, v)


def tensors(g: MetricFunction, points: Points) -> Float64[Tensor, "token dim dim dim dim"]:
    """R_ijkl in each point's frame. Memory is 8 d^4 bytes a point, which the caller bounds."""
    return in_chunks(lambda x: riemann_frame(g, x)[0], g.dim**4, points)


def by_outer_slots(R: Float64[Tensor, "token dim dim dim dim"]) -> Float64[Tensor, "token square square"]:
    """R_ijkl as a matrix from il to jk."""
    return R.permute(0, 1, 4, 2, 3).flatten(3).flatten(1, 2)


def of_tensor(
    by_outer: Float64[Tensor, "token square square"],
    u: Float64[Tensor, "token plane dim"],
    v: Float64[Tensor, "token plane dim"],
) -> Float64[Tensor, "token plane"]:
    """R(u, v, v, u), which is K where u and v are orthonormal in the frame; of R as ``by_outer_slots`` has it."""
    return torch.einsum("npjk,npj,npk->np", _around(by_outer, u), v, v)


def extremes(
    by_outer: Float64[Tensor, "token square square"],
    u: Float64[Tensor, "token plane dim"],
    v: Float64[Tensor, "token plane dim"],
) -> tuple[Float64[Tensor, " token"], Float64[Tensor, " token"]]:
    """The smallest and the largest R(u, v, v, u) found from the best few of orthonormal pairs; those of NaN are left
    out."""
    K = of_tensor(by_outer, u, v)
    return -_largest(-by_outer, -K, u, v), _largest(by_outer, K, u, v)


def _largest(by_outer: Tensor, K: Tensor, u: Tensor, v: Tensor) -> Float64[Tensor, " token"]:
    """With u held, R(u, v, v, u) is a quadratic form in v, whose best unit vector orthogonal to u is an eigenvector. Of
    the plane's vectors the one whose replacement promises most is replaced, again and again; the value never falls,
    and what is reached is near a local maximum.
    """
    good = by_outer.flatten(1).isfinite().all(-1)
    best = K.nan_to_num(-torch.inf).topk(min(STARTS, K.shape[1])).indices.unsqueeze(-1).expand(-1, -1, u.shape[-1])
    found = torch.where(good, K.nan_to_num(-torch.inf).amax(-1), torch.nan)
    by_outer, plane = by_outer[good], torch.stack([u.gather(1, best), v.gather(1, best)], -1)[good]
    for _ in range(ROUNDS if good.any() else 0):
        held = _least_pulled(by_outer, plane)
        form = _around(by_outer, held)
        low = form.abs().sum((-2, -1))[..., None, None] + 1  # beyond every eigenvalue, so that held is never chosen
        values, vectors = torch.linalg.eigh(form - low * held.unsqueeze(-1) * held.unsqueeze(-2))
        plane = torch.stack([held, vectors[..., -1]], -1)
        found[good] = torch.maximum(found[good], values[..., -1].amax(-1))
    return found


def _least_pulled(
    by_outer: Float[Tensor, "token square square"], plane: Float[Tensor, "token plane dim 2"]
) -> Float[Tensor, "token plane dim"]:
    """Of each plane's unit vectors, the one that the gradient of its curvature moves least out of the plane."""
    u, v = plane.unbind(-1)
    pull = torch.cat([_around(by_outer, v) @ u.unsqueeze(-1), _around(by_outer, u) @ v.unsqueeze(-1)], -1)
    pull = pull - plane @ (plane.mT @ pull)
    return (plane @ torch.linalg.eigh(pull.mT @ pull)[1][..., :1]).squeeze(-1)


def _around(
    by_outer: Float[Tensor, "token square square"], u: Float[Tensor, "token plane dim"]
) -> Float[Tensor, "token plane dim dim"]:
    """The form v -> R(u, v, v, u) of each u, as a symmetric matrix."""
    outer = (u.unsqueeze(-1) * u.unsqueeze(-2)).flatten(-2)
    form = (outer @ by_outer).unflatten(-1, (u.shape[-1], u.shape[-1]))
    return (form + form.mT) / 2
