"""Geodesics between two points, by Ritz's method: the curve of least energy among polynomials.

    c(t) = x + E (t delta + sum_k b_k(t) z_k),  b_k(t) = int_0^t p_k,  p_k orthonormal Legendre polynomials of [0, 1]

b_k vanishes at both ends, so every z is a curve from x to x + E delta, and z = 0 is the straight one. The energy
int g(c', c') dt, by Gauss's rule, is minimised over z; degrees are doubled until the length stays. For a smooth field
the error falls faster than any power of the degree, and that of the length is the square of the curve's. A field with a
kink (MetricNet's hard ceiling) converges more slowly, and the error says so. Whatever the degree, what is found is a
curve: its length is an upper bound of the distance. The minimum is local: which one depends on the start.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.func import grad_and_value, vmap

from fbt_core.geometry.curves import Curves, basis, coordinates, gauss, lengths
from fbt_core.geometry.descent import Minimum, minimise
from fbt_core.geometry.function import MetricFunction
from fbt_core.geometry.geodesic import SAMPLES, Geodesic, sampled, shoot
from fbt_core.geometry.metric import LowRankMetric

DEGREES = (4, 8, 16, 32)
"""Of the polynomial that is the velocity, one after another."""

TOLERANCE = 1e-9
"""Relative, of the length: degrees are raised until the length changes by less."""

ACCEPTED = 1e-3
"""Relative error of the length beyond which a curve counts as not found."""

STATIONARY = 1e-9
"""Slope of the energy, relative to its root, at which the minimiser stops: the relative error of the velocity."""

BARELY = 1e-2
"""Slope beyond which a minimum counts as not found. Its square is part of the length's error, which matters at a kink:
there the energy of finitely many nodes has one as well, and its slope need not vanish."""

ITERATIONS = 300


def connect(
    g: MetricFunction, x: Float[Tensor, " space"], y: Float[Tensor, " space"], tolerance: float = TOLERANCE,
    samples: int = SAMPLES, shot: bool = True,
) -> Geodesic:  # fmt: skip
    """The geodesic from x to y, over unit time; where the slice is not the whole space, to y's place in x's slice.

    ``error`` is that of the length, an estimate. With ``shot`` the integrator is sent off with the curve's first
    velocity, and ``miss`` says how far from the end it lands, relative to the way: an independent check. Raises
    ``ValueError`` for points that are not finite. Source: docs/mathematics.md, "Geodesics".
    """
    return connect_all(g, x[None], y[None], tolerance, samples, shot)[0]


def log(g: MetricFunction, x: Float[Tensor, " space"], y: Float[Tensor, " space"]) -> Float[Tensor, " dim"]:
    """The logarithm map: the velocity at x that reaches y at time 1. NaN where no geodesic was found."""
    found = connect(g, x, y, samples=2, shot=False)
    return found.velocities[0] if found.converged else torch.full_like(found.velocities[0], float("nan"))


def connect_all(
    g: MetricFunction, x: Float[Tensor, "pair space"], y: Float[Tensor, "pair space"], tolerance: float = TOLERANCE,
    samples: int = SAMPLES, shot: bool = False, starts: Curves | None = None,
) -> list[Geodesic]:  # fmt: skip
    """``connect`` for many pairs at once; ``starts`` are curves to begin with, where the straight ones will not do."""
    if not (x.isfinite().all() and y.isfinite().all()):
        raise ValueError("got points that are not finite, expected finite ones")
    if not len(x):
        return []
    x, y = x.double(), y.double()
    delta = coordinates(g, y - x)
    curves = Curves(x, delta, delta.new_zeros(*delta.shape[:1], 0, g.dim)) if starts is None else starts
    solved = _refine(g, curves, tolerance)
    misses = [float("nan")] * len(solved)
    if aimed := [place for place, one in enumerate(solved) if shot and not _fault(one)]:
        for place, miss in zip(aimed, _misses(g, [solved[place] for place in aimed]), strict=True):
            misses[place] = miss
    return [_record(g, one, samples, miss) for one, miss in zip(solved, misses, strict=True)]


@dataclass(frozen=True)
class _Solved:
    curve: Curves  # of one
    length: float
    error: float
    slope: float
    iterations: int


def _refine(g: MetricFunction, curves: Curves, tolerance: float) -> list[_Solved]:
    """Each curve at the lowest degree whose length agrees with that of the one before."""
    found: dict[int, _Solved] = {}
    waiting = torch.arange(len(curves.x), device=curves.x.device)
    before = torch.full_like(curves.x[:, 0], float("inf"))
    taken = torch.zeros_like(waiting)
    degrees = [degree for degree in DEGREES if degree >= curves.z.shape[1]]
    for degree in degrees:
        curves, minimum = _descend(g, curves.raised(degree))
        taken[waiting] += minimum.iterations
        nodes = 2 * degree + 2
        coarse, fine = lengths(g, curves, nodes), lengths(g, curves, 2 * nodes)
        error = torch.stack([(fine - before).abs(), (fine - coarse).abs(), minimum.slope.square() * fine]).amax(0)
        done = (error <= tolerance * fine) | ~fine.isfinite() | (degree == degrees[-1])
        for place in done.nonzero().flatten().tolist():
            index = int(waiting[place])
            found[index] = _Solved(
                curves[place : place + 1], float(fine[place]), float(error[place]), float(minimum.slope[place]),
                int(taken[index]),
            )  # fmt: skip
        waiting, curves, before = waiting[~done], curves[~done], fine[~done]
        if not len(waiting):
            break
    return [found[index] for index in sorted(found)]


def _descend(g: MetricFunction, curves: Curves) -> tuple[Curves, Minimum]:
    """The curves of least energy of their degree. The preconditioner is the exact inverse Hessian of a constant g."""
    degree, dim = curves.z.shape[1:]
    times, weights = gauss(2 * degree + 2, curves.x)
    position, velocity = basis(degree, times)

    def energy(z: Tensor, x: Tensor, delta: Tensor) -> Tensor:
        z = z.reshape(degree, dim)
        points = x + vmap(g.embed)(times[:, None] * delta + position @ z)
        along = delta + velocity @ z
        return weights @ vmap(g.inner)(points, along, along)

    gradient = vmap(grad_and_value(energy))
    inverse = _inverse(g, curves)

    def evaluate(z: Tensor, which: Tensor) -> tuple[Tensor, Tensor]:
        slope, value = gradient(z, curves.x[which], curves.delta[which])
        return value.detach(), slope.detach()

    def precondition(r: Tensor, which: Tensor) -> Tensor:
        return inverse(r.reshape(-1, degree, dim), which).flatten(1) / 2

    best = minimise(evaluate, precondition, curves.z.flatten(1), STATIONARY, ITERATIONS)
    return Curves(curves.x, curves.delta, best.place.reshape(-1, degree, dim)), best


def _inverse(g: MetricFunction, curves: Curves) -> Callable[[Tensor, Tensor], Tensor]:
    """(covectors (n, degree, d), which curves (n,)) -> g^{-1} of them, g taken at the middle of each curve."""
    half = torch.full((1,), 0.5, dtype=curves.x.dtype, device=curves.x.device)
    middle = curves.at(g, half)[0][:, 0]
    if g.factor is not None:
        metric = LowRankMetric(vmap(g.factor)(middle)[:, None].detach())
        return lambda r, which: LowRankMetric(metric.U[which]).solve(r)
    dense = torch.linalg.pinv(vmap(g.dense)(middle).detach(), hermitian=True)
    return lambda r, which: r @ dense[which]


def _misses(g: MetricFunction, solved: Sequence[_Solved]) -> list[float]:
    """Where the initial velocities lead, against where they should."""
    end = torch.ones(1, dtype=torch.float64, device=solved[0].curve.x.device)
    ways = [one.curve.at(g, torch.cat([0 * end, end])) for one in solved]
    starts, velocities = torch.cat([w[0][:, 0] for w in ways]), torch.cat([w[1][:, 0] for w in ways])
    landed = shoot(g, starts, velocities).at(end)[0, :, : starts.shape[-1]]
    aims = torch.cat([w[0][:, 1] for w in ways])
    far = (aims - starts).norm(dim=-1)
    return ((landed - aims).norm(dim=-1) / torch.where(far > 0, far, 1)).tolist()


def _record(g: MetricFunction, one: _Solved, samples: int, miss: float) -> Geodesic:
    curve = one.curve

    def at(times: Tensor) -> tuple[Tensor, Tensor]:
        points, velocities = curve.at(g, times)
        return points[0], velocities[0]

    return sampled(
        g, at, one.iterations, one.error, samples, curve.x.device,
        length=one.length, why=_fault(one), miss=miss, degree=curve.z.shape[1],
    )  # fmt: skip


def _fault(one: _Solved) -> str:
    """Why a curve does not count as found; empty where it does."""
    if not np.isfinite(one.length):
        return "the metric is not finite along the way"
    if not one.slope <= BARELY:
        return f"the minimiser stopped at a slope of {one.slope:.1e}, expected at most {BARELY:g}"
    if one.error > ACCEPTED * one.length:
        degree, error = one.curve.z.shape[1], one.error / one.length
        return f"polynomials of degree {degree} leave a relative error of {error:.1e} in the length"
    return ""
