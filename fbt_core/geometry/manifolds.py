"""Metrics whose curvature is known in closed form, each with the exact answer: what the code is held against.

``graph``, ``flat`` and ``constant`` go through the low-rank path g = I + U U^T, as MetricNet does; the others do not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import jacfwd, jvp

from fbt_core.geometry.function import MetricFunction

Seeded = Callable[[torch.Generator], Tensor]


@dataclass(frozen=True)
class Manifold:
    """A metric, a way to draw points where it is defined, and K of the plane of (u, v) at x, exactly."""

    metric: MetricFunction
    point: Seeded
    exact: Callable[[Tensor, Tensor, Tensor], float]


def sphere(dim: int = 3, radius: float = 2.0) -> Manifold:
    """Stereographic coordinates: g = 4 R^4 / (R^2 + |x|^2)^2 I, K = 1 / R^2."""
    metric = MetricFunction(dim, lambda x, a, b: 4 * radius**4 / (radius**2 + x @ x).square() * (a @ b), name="sphere")
    return Manifold(metric, lambda rng: radius * _normal(rng, dim), lambda x, u, v: radius**-2)


def poincare(dim: int = 4) -> Manifold:
    """The Poincare ball: g = 4 / (1 - |x|^2)^2 I, K = -1."""

    def point(rng: torch.Generator) -> Tensor:
        x = _normal(rng, dim)
        return 0.6 * x / (1 + x.norm())

    metric = MetricFunction(dim, lambda x, a, b: 4 / (1 - x @ x).square() * (a @ b), name="Poincare ball")
    return Manifold(metric, point, lambda x, u, v: -1.0)


def halfspace(dim: int = 3) -> Manifold:
    """The upper half-space x_d > 0: g = I / x_d^2, K = -1."""

    def point(rng: torch.Generator) -> Tensor:
        x = _normal(rng, dim)
        return torch.cat([x[:-1], x[-1:].exp()])

    return Manifold(
        MetricFunction(dim, lambda x, a, b: (a @ b) / x[-1].square(), name="half-space"), point, lambda x, u, v: -1.0
    )


def flat() -> Manifold:
    """Euclidean R^3 in odd coordinates y(x) = x + sin-like bends: g = J^T J with J = dy / dx, K = 0."""

    def bent(x: Tensor) -> Tensor:
        return x + 0.3 * torch.stack([(x[1] + x[2]).sin(), (x[0] * x[2]).tanh(), x[0].square() / (1 + x[1].square())])

    def inner(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
        return jvp(bent, (x,), (a,))[1] @ jvp(bent, (x,), (b,))[1]

    metric = MetricFunction(3, inner, name="flat, in odd coordinates")
    return Manifold(metric, lambda rng: 0.7 * _normal(rng, 3), lambda x, u, v: 0.0)


def torus() -> Manifold:
    """Of radii 2 and 1, by its angles (theta around, phi across): g = diag((2 + cos phi)^2, 1); Gaussian curvature."""

    def inner(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
        return (2 + x[1].cos()).square() * a[0] * b[0] + a[1] * b[1]

    def exact(x: Tensor, u: Tensor, v: Tensor) -> float:
        return float(x[1].cos() / (2 + x[1].cos()))

    return Manifold(MetricFunction(2, inner, name="torus"), lambda rng: _normal(rng, 2), exact)


def graph(dim: int = 5, rank: int = 3) -> Manifold:
    """The graph of f: R^d -> R^r, whose induced metric is exactly I + U U^T with U = J_f^T.

    K by Gauss's equation from the Hessian h of f: the normal part of the second fundamental form is measured by
    (I + J J^T)^{-1}, so R(u, v, v, u) = h(u, u) N h(v, v) - h(u, v) N h(u, v) with N that matrix (do Carmo, ch. 6).
    """
    W = torch.linspace(-1.0, 1.3, dim * rank, dtype=torch.float64).sin().reshape(rank, dim)

    def f(x: Tensor) -> Tensor:
        W_here = W.to(x.device)
        return (W_here @ x).sin() + 0.2 * (W_here @ x.square())

    def exact(x: Tensor, u: Tensor, v: Tensor) -> float:
        J, h = _slope_and_bend(W.to(x.device), x)
        normal = torch.linalg.inv(torch.eye(rank, dtype=x.dtype, device=x.device) + J @ J.mT)
        g = torch.eye(dim, dtype=x.dtype, device=x.device) + J.mT @ J
        uu, uv, vv = h(u, u), h(u, v), h(v, v)
        area = (u @ g @ u) * (v @ g @ v) - (u @ g @ v).square()
        return float((uu @ normal @ vv - uv @ normal @ uv) / area)

    metric = MetricFunction.low_rank(lambda x: jacfwd(f)(x).mT, dim, name="graph")
    return Manifold(metric, lambda rng: _normal(rng, dim), exact)


def _slope_and_bend(W: Tensor, x: Tensor) -> tuple[Tensor, Callable[[Tensor, Tensor], Tensor]]:
    """J (r, d) of the graph's f, and its Hessian (a, b) -> (r,), by hand."""
    z = W @ x
    return z.cos()[:, None] * W + 0.4 * W * x, lambda a, b: -z.sin() * (W @ a) * (W @ b) + 0.4 * (W @ (a * b))


def constant(dim: int = 5, rank: int = 2) -> Manifold:
    """g = I + U U^T with one U everywhere: the paper's proxy is positive, K = 0."""
    U = torch.linspace(-1.0, 2.0, dim * rank, dtype=torch.float64).cos().reshape(dim, rank)
    metric = MetricFunction.low_rank(lambda x: U.to(x.device) + 0 * x.sum(), dim, name="constant U")
    return Manifold(metric, lambda rng: _normal(rng, dim), lambda x, u, v: 0.0)


def _normal(rng: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=rng, dtype=torch.float64)


MANIFOLDS: dict[str, Callable[..., Manifold]] = {
    "sphere": sphere,
    "poincare": poincare,
    "halfspace": halfspace,
    "flat": flat,
    "torus": torus,
    "graph": graph,
    "constant": constant,
}
"""Each takes its numbers in order: a dimension, and for the sphere its radius."""


def manifold(case: str) -> Manifold:
    """A manifold by its case, such as ``sphere:3:2.0``, ``poincare:4`` or ``torus``.

    Raises ``ValueError`` (got, expected) for a name or numbers that there are none of.
    """
    name, *numbers = case.split(":")
    if name not in MANIFOLDS:
        raise ValueError(f"got case {case!r}, expected one of {', '.join(MANIFOLDS)}")
    allowed = {"sphere": (int, float), "poincare": (int,), "halfspace": (int,)}.get(name, ())
    try:
        given = [kind(number) for kind, number in zip(allowed, numbers, strict=False)]
    except ValueError:
        given = [0]
    if len(numbers) > len(allowed) or (given and not 2 <= given[0] <= 32) or not all(0 < n < 1e6 for n in given):
        form = ":".join([name, *["DIMENSION", "RADIUS"][: len(allowed)]])
        raise ValueError(f"got case {case!r}, expected {form}, a dimension from 2 to 32 and a positive radius")
    return MANIFOLDS[name](*given)
