"""Levi-Civita parallel transport along a curve: w' = -Gamma(c', w). It keeps every g(w, w), whatever the curve."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.func import vmap

from fbt_core.geometry.connection import christoffel
from fbt_core.geometry.curves import Curves, coordinates
from fbt_core.geometry.function import MetricFunction
from fbt_core.geometry.geodesic import SAMPLES, TOLERANCE, Curve, Geodesic, flow


@dataclass(frozen=True)
class Transported:
    """Vectors carried along a curve, at n equal times from 0 to 1; NaN past the place where the integrator stopped."""

    points: Float[Tensor, "n space"]
    vectors: Float[Tensor, "n count dim"]
    error: float  # the largest change of an inner product of two of them, relative to the largest: 0 for an isometry
    steps: int
    why: str = ""  # why the end was not reached; empty where it was


def transport(
    g: MetricFunction, along: Geodesic | Curve, w: Float[Tensor, "*count dim"],
    tolerance: float = TOLERANCE, samples: int = SAMPLES,
) -> Transported:  # fmt: skip
    """Carry one vector (d,) or several (count, d) along a geodesic or another curve (``segment``), from time 0 to 1.

    Source: docs/mathematics.md, "Geodesics".
    """
    at = along.at if isinstance(along, Geodesic) else along
    start = torch.atleast_2d(w).double()

    def field(t: float, W: Tensor) -> Tensor:
        (x,), (v,) = at(torch.tensor([t], dtype=start.dtype, device=start.device))
        return -vmap(lambda a: christoffel(g, x, v, a))(W)

    found = flow(field, start, tolerance)
    times = torch.linspace(0, 1, samples, dtype=start.dtype, device=start.device)
    points, _ = at(times)
    vectors = found.at(times)
    products = vmap(lambda x, W: vmap(lambda a: g.lower(x, a))(W) @ W.mT)(points, vectors)
    size = products[0].abs().max()
    error = float((products - products[0]).abs().max() / torch.where(size > 0, size, 1))
    return Transported(points, vectors, error, found.steps, found.why)


def segment(g: MetricFunction, x: Float[Tensor, " space"], y: Float[Tensor, " space"]) -> Curve:
    """The straight segment from x to y (in x's slice) over unit time: a curve, and in general no geodesic."""
    delta = coordinates(g, (y - x).double())
    straight = Curves(x.double()[None], delta[None], delta.new_zeros(1, 0, g.dim))

    def at(times: Tensor) -> tuple[Tensor, Tensor]:
        points, velocities = straight.at(g, times)
        return points[0], velocities[0].expand(len(times), -1)

    return at
