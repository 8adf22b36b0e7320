"""Geodesics from a point and a velocity: x'' = -Gamma(x', x'), and the exponential map.

The integrator is SciPy's DOP853 (Dormand and Prince, order 8, adaptive): a smooth system in float64 to ten digits is
what a high order is for, and its dense output gives the curve at any time. The right-hand side runs on the points' own
device; several curves go as one system with shared steps. What cannot be integrated is told and never hidden.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.func import grad, jvp, vmap

from fbt_core.geometry.function import MetricFunction

TOLERANCE = 1e-10
"""Of one step, relative to the size of the state."""

MAXIMUM_STEPS = 100
"""A smooth field takes five to ten; a curve that runs into a singularity would shrink its steps for ever."""

SAMPLES = 33
"""Points at which a curve is kept, at equal times from 0 to 1."""

Curve = Callable[[Tensor], tuple[Tensor, Tensor]]
"""Times (n,) -> points (n, D) and velocities (n, d)."""


@dataclass(frozen=True, eq=False)
class Geodesic:
    """A curve over the times 0 to 1, sampled at n equal times; ``at`` gives it at any other.

    A curve that was not found to its end has ``converged`` False, a ``why``, and NaN where there is no number.
    """

    points: Float[Tensor, "n space"]
    velocities: Float[Tensor, "n dim"]
    length: float  # in units of the metric
    speed_drift: float  # (largest - smallest speed) / mean over the samples; 0 for a true geodesic
    steps: int  # of the integrator, or iterations of the minimiser
    error: float  # estimate: of the end point's place (from a velocity), of the length (between two points)
    at: Curve
    converged: bool = True
    why: str = ""
    miss: float = float("nan")  # between two points: how far the integrator, shot from the start, lands from the end
    degree: int = 0  # between two points: of the polynomial that is the velocity


@dataclass(frozen=True, eq=False)
class Flow:
    """A solution of y' = f(t, y) from t = 0 to 1. ``at(times)`` is (n, *shape of y), NaN past ``reached``."""

    at: Callable[[Tensor], Tensor]
    steps: int
    reached: float
    why: str


def flow(
    field: Callable[[float, Tensor], Tensor], start: Tensor, tolerance: float = TOLERANCE, steps: int | None = None
) -> Flow:
    """Integrate y' = field(t, y) from ``start``, any shape, float64, over unit time; ``steps`` fixes their number."""
    from scipy.integrate import DOP853, OdeSolution

    def right(t: float, y: np.ndarray) -> np.ndarray:
        state = torch.from_numpy(y.copy()).to(start.device).reshape(start.shape)
        return field(float(t), state).detach().flatten().cpu().numpy()

    y = start.detach().flatten().cpu().numpy()
    if not (np.isfinite(y).all() and np.isfinite(right(0.0, y)).all()):
        return Flow(_nowhere(start), 0, 0.0, "the equation has no finite value at its start")
    free: dict[str, Any] = {"rtol": max(tolerance, 3e-14), "atol": tolerance * max(1.0, float(np.abs(y).max()))}
    fixed: dict[str, Any] = {
        "rtol": 1e30,
        "atol": 1e30,
        "first_step": 1 / (steps or 1),
        "max_step": (1 + 1e-12) / (steps or 1),
    }
    times, pieces, why = [0.0], [], ""
    with np.errstate(all="ignore"):
        solver = DOP853(right, 0.0, y, 1.0, **(fixed if steps else free))
        while solver.status == "running" and not why:
            solver.step()
            if solver.status == "failed" or len(pieces) == (steps or MAXIMUM_STEPS):
                why = f"the integrator stopped at time {times[-1]:.3g} of 1: its steps become too small"
            else:
                times.append(float(solver.t))
                pieces.append(solver.dense_output())
    reached = times[-1]
    if not pieces:
        return Flow(_nowhere(start), 0, 0.0, why)
    solution = OdeSolution(times, pieces)

    def at(moments: Tensor) -> Tensor:
        values = solution(np.clip(moments.cpu().numpy(), 0, reached)).T
        values[moments.cpu().numpy() > reached] = np.nan
        return torch.from_numpy(values).to(start.device).reshape(len(moments), *start.shape)

    return Flow(at, len(pieces), reached, why)


def _nowhere(start: Tensor) -> Callable[[Tensor], Tensor]:
    return lambda times: start.new_full((len(times), *start.shape), float("nan"))


def geodesic(
    g: MetricFunction, x: Float[Tensor, " space"], v: Float[Tensor, " dim"],
    tolerance: float = TOLERANCE, steps: int | None = None, samples: int = SAMPLES,
) -> Geodesic:  # fmt: skip
    """The geodesic that leaves x with the velocity v, over unit time. Its length is its speed, sqrt(g_x(v, v)).

    The error is the distance in the space between its end and that of a finer run, of a thousandth of the tolerance or
    twice the steps. Source: docs/mathematics.md, "Geodesics".
    """
    x, v = x.double(), v.double()
    found = shoot(g, x[None], v[None], tolerance, steps)
    finer = shoot(g, x[None], v[None], tolerance / 1000, 2 * steps if steps else None)
    end = torch.ones(1, dtype=x.dtype, device=x.device)

    def at(times: Tensor) -> tuple[Tensor, Tensor]:
        state = found.at(times)[:, 0]
        return state[:, : len(x)], state[:, len(x) :]

    error = float((at(end)[0] - finer.at(end)[:, 0, : len(x)]).norm())
    return sampled(g, at, found.steps, error if error == error else float("inf"), samples, x.device, why=found.why)


def shoot(
    g: MetricFunction, x: Float[Tensor, "curve space"], v: Float[Tensor, "curve dim"],
    tolerance: float = TOLERANCE, steps: int | None = None,
) -> Flow:  # fmt: skip
    """Several geodesics at once, with shared steps; the state is (curve, D + d), point then velocity."""
    space = x.shape[-1]

    def field(state: Tensor) -> Tensor:
        a = state[space:]
        return torch.cat([g.embed(a), acceleration(g, state[:space], a)])

    return flow(lambda _, state: vmap(field)(state), torch.cat([x, v], -1), tolerance, steps)


def acceleration(g: MetricFunction, x: Float[Tensor, " space"], v: Float[Tensor, " dim"]) -> Float[Tensor, " dim"]:
    """-Gamma(v, v) = -g^{-1} ([D_v g] v - 1/2 grad(v^T g v)), each derivative taken once."""
    change = jvp(lambda y: g.lower(y, v), (x,), (g.embed(v),))[1]
    return -g.raise_(x, change - g.restrict(grad(lambda y: g.inner(y, v, v))(x)) / 2)


def exp(g: MetricFunction, x: Float[Tensor, " space"], v: Float[Tensor, " dim"]) -> Float[Tensor, " space"]:
    """The exponential map: where the geodesic from x with velocity v is at time 1. NaN where it does not get there."""
    x, v = x.double(), v.double()
    return shoot(g, x[None], v[None]).at(torch.ones_like(x[:1]))[0, 0, : len(x)]


def sampled(
    g: MetricFunction, at: Curve, steps: int, error: float, samples: int, device: torch.device,
    length: float | None = None, converged: bool = True, why: str = "", miss: float = float("nan"), degree: int = 0,
) -> Geodesic:  # fmt: skip
    """The record of a curve that is given as a function of time."""
    points, velocities = at(torch.linspace(0, 1, samples, dtype=torch.float64, device=device))
    speed = speeds(g, points, velocities)
    drift = float((speed.max() - speed.min()) / speed.mean()) if speed.max() > 0 else float(speed.max())
    length = float(speed.mean()) if length is None else length
    return Geodesic(
        points, velocities, length, drift, steps, error, at, converged and not why, why, miss, degree
    )  # fmt: skip


def speeds(
    g: MetricFunction, points: Float[Tensor, "n space"], velocities: Float[Tensor, "n dim"]
) -> Float[Tensor, " n"]:
    """sqrt(g(v, v)) of each velocity at its point."""
    return vmap(g.inner)(points, velocities, velocities).sqrt()
