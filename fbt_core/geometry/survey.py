"""All that is asked of a metric field's curvature at some points, in one pass: scalar, extremes, planes that matter."""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from jaxtyping import Float64
from torch import Tensor
from torch.func import vmap

from fbt_core.geometry import planes as sampling
from fbt_core.geometry.curvature import EXACT_DIM, TENSOR_DIM, riemann_frame, sectional_planes
from fbt_core.geometry.frame import frame
from fbt_core.geometry.function import MetricFunction

ILL_CONDITIONED = 1e8
"""Above this ratio of g's largest eigenvalue to its smallest, half of float64's digits are gone."""

PerToken = Float64[Tensor, " token"]
Vectors = Float64[Tensor, "token dim"]
Pair = tuple[Vectors, Vectors]


@dataclass(frozen=True)
class Survey:
    """One number a point in each field; NaN where there is none. Curvatures in 1 / (length under g)^2."""

    scalar: PerToken  # exact up to rounding where d allows, else the mean over random planes
    scalar_error: PerToken  # of that: the size of its rounding, or its standard error
    sampled: PerToken  # d (d - 1) times the mean K of random planes
    sampling_error: PerToken  # its standard error
    smallest: PerToken  # the smallest K found, never below the true one
    largest: PerToken  # the largest K found, never above the true one
    top: PerToken  # K of the plane of the two directions in which g is largest
    qk: PerToken  # K of the plane of the two vectors that the caller gave
    log_volume: PerToken  # log sqrt det g, nats
    condition: PerToken  # largest eigenvalue of g over its smallest

    def where(self, good: Tensor) -> Survey:
        """The survey of all points, of which these are the good ones."""
        spread = {}
        for name, values in self.items():
            spread[name] = torch.full(good.shape, torch.nan, dtype=values.dtype, device=values.device)
            spread[name][good] = values
        return Survey(**spread)

    def items(self) -> list[tuple[str, Tensor]]:
        """Names and values of the fields."""
        return [(field.name, getattr(self, field.name)) for field in fields(self)]


def survey(
    g: MetricFunction, points: Float64[Tensor, "token space"], planes: int = 64, seed: int = 0, pair: Pair | None = None
) -> Survey:
    """The survey at some points, ``pair`` being two vectors (token, d) at each. Points or metrics that are not finite
    give NaN. For d <= ``TENSOR_DIM`` through the full tensor, which then gives every plane at no cost; above, plane by
    plane. Raises ``ValueError`` for d < 2.
    """
    if g.dim < 2:
        raise ValueError(f"got dimension {g.dim}, expected at least 2: a line has no curvature of its own")
    with torch.no_grad():
        matrices = sampling.in_chunks(g.dense, g.dim**2 * 8, points)
        good = points.isfinite().all(-1) & matrices.flatten(1).isfinite().all(-1)
        spectrum, vectors = torch.linalg.eigh(matrices[good])
        by = _by_tensor if g.dim <= TENSOR_DIM else _by_planes
        size = g.dim**4 if g.dim <= TENSOR_DIM else sampling.plane_numbers(g, planes)
        many = max(1, sampling.CHUNK_NUMBERS // size)
        nothing = torch.full_like(vectors[..., 0], torch.nan)
        u, v = (nothing, nothing) if pair is None else (vector[good] for vector in pair)
        chosen = torch.stack([vectors[..., -1], u], 1), torch.stack([vectors[..., -2], v], 1)  # token plane dim
        chunks = zip(*(part.split(many) for part in (points[good], *chosen)), strict=True)
        parts = [by(g, x, planes, seed, a, b) for x, a, b in chunks] if bool(good.any()) else [[points[:0, 0]] * 8]
        columns = [torch.cat(column) for column in zip(*parts, strict=True)]
        spectrum = torch.where(spectrum > 0, spectrum, torch.nan)
        found = Survey(*columns, spectrum.log().sum(-1) / 2, spectrum[..., -1] / spectrum[..., 0])
        return found.where(good)


def _by_tensor(g: MetricFunction, x: Tensor, planes: int, seed: int, a: Tensor, b: Tensor) -> list[Tensor]:
    """The first eight fields, from R in each point's frame."""
    R, F, size = vmap(lambda y: riemann_frame(g, y))(x)
    u, v = sampling.random_planes(g.dim, planes, seed, x)
    u, v = u.expand(len(x), -1, -1), v.expand(len(x), -1, -1)
    a, b = _orthonormal(*(torch.linalg.solve_triangular(F, vector.mT, upper=True).mT for vector in (a, b)))
    by_outer = sampling.by_outer_slots(R)
    given = sampling.of_tensor(by_outer, a, b)
    smallest, largest = sampling.extremes(by_outer, torch.cat([u, a], 1), torch.cat([v, b], 1))
    rounding = torch.finfo(x.dtype).eps * g.dim * (g.dim - 1) * size
    sampled = sampling.mean_and_error(sampling.of_tensor(by_outer, u, v), g.dim)
    return [torch.einsum("nijji->n", R), rounding, *sampled, smallest, largest, given[:, 0], given[:, 1]]


def _by_planes(g: MetricFunction, x: Tensor, planes: int, seed: int, a: Tensor, b: Tensor) -> list[Tensor]:
    """The same by directional derivatives, plane by plane."""
    u, v = sampling.random_planes(g.dim, planes, seed, x)

    def one(y: Tensor, a: Tensor, b: Tensor) -> Tensor:
        F = frame(g, y)
        a, b = _orthonormal(*(torch.linalg.solve_triangular(F, vector.mT, upper=True).mT for vector in (a, b)))
        return sectional_planes(g, y, torch.cat([u, a]) @ F.mT, torch.cat([v, b]) @ F.mT)

    K = vmap(one)(x, a, b)
    value, error = sampled = sampling.mean_and_error(K[:, :planes], g.dim)
    if g.factor is not None and g.dim <= EXACT_DIM:
        value, error = sampling.scalar_exact(g, x)
    every = K.nan_to_num(torch.inf).amin(-1), K.nan_to_num(-torch.inf).amax(-1)
    extremes = (torch.where(end.isfinite(), end, torch.nan) for end in every)
    return [value, error, *sampled, *extremes, K[:, -2], K[:, -1]]


def _orthonormal(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Gram-Schmidt in an orthonormal frame; NaN where a and b are parallel."""
    a = a / a.norm(dim=-1, keepdim=True)
    left = b / b.norm(dim=-1, keepdim=True)
    for _ in range(2):
        left = left - (a * left).sum(-1, keepdim=True) * a
        size = left.norm(dim=-1, keepdim=True)
        left = left / torch.where(size > 1e-12, size, torch.nan)
    return a, left
