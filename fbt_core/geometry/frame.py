"""A metric function seen in coordinates that are orthonormal at one point: there g = I, and indices need no raising."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor
from torch.func import jvp, vmap

from fbt_core.geometry.function import MetricFunction, Point

Frame = Float[Tensor, "dim dim"]
Change = Float[Tensor, "dim dim dim"]
SecondChange = Float[Tensor, "dim dim dim dim"]


def frame(g: MetricFunction, x: Point) -> Frame:
    """F with F^T g F = I, its columns a g-orthonormal frame; upper triangular, the inverse of the Cholesky factor's
    transpose. NaN where g is not positive definite."""
    matrix = g.dense(x)
    factor, info = torch.linalg.cholesky_ex(matrix)
    eye = torch.eye(g.dim, dtype=x.dtype, device=x.device)
    factor = torch.where(info == 0, factor, torch.nan)
    return torch.linalg.solve_triangular(factor.mT, eye, upper=True)


def derivatives(g: MetricFunction, x: Point, F: Frame) -> tuple[Change, SecondChange]:
    """First and second derivatives of F^T g F along the columns of F, F held fixed: D_i g_ab, and D_i D_j g_ab.

    d^2 second directional derivatives of U (d x r), or of the dense matrix: the full-tensor route, for d <= 32.
    """
    if g.factor is None:
        first, second = _along_both(g, x, lambda y: F.mT @ g.dense(y) @ F, F.mT)
        return first, second
    U, (first, second) = g.factor(x), _along_both(g, x, g.factor, F.mT)  # ar; iar, ijar
    u, first, second = F.mT @ U, F.mT @ first, F.mT @ second
    once = first @ u.mT
    twice = second @ u.mT + first.unsqueeze(1) @ first.mT
    return once + once.mT, twice + twice.mT


def christoffel_frame(first: Change) -> Change:
    """Gamma_ijk = <Gamma(e_i, e_j), e_k> of an orthonormal frame: 1/2 (D_i g_jk + D_j g_ik - D_k g_ij)."""
    return (first + first.permute(1, 0, 2) - first.permute(1, 2, 0)) / 2


def along(
    g: MetricFunction, x: Point, function: Callable[[Tensor], Tensor], vectors: Float[Tensor, "vector dim"]
) -> Tensor:
    """The derivative of a function of the point along each vector, stacked in front."""
    return vmap(lambda a: jvp(function, (x,), (g.embed(a),))[1])(vectors)


def along_twice(
    g: MetricFunction,
    x: Point,
    function: Callable[[Tensor], Tensor],
    a: Float[Tensor, " dim"],
    b: Float[Tensor, " dim"],
) -> Tensor:
    """D_a D_b of a function of the point, for constant vectors a and b."""

    def once(y: Tensor) -> Tensor:
        return jvp(function, (y,), (g.embed(b),))[1]

    return jvp(once, (x,), (g.embed(a),))[1]


def _along_both(
    g: MetricFunction, x: Tensor, function: Callable[[Tensor], Tensor], vectors: Float[Tensor, "vector dim"]
) -> tuple[Tensor, Tensor]:
    """The first derivatives along all vectors, and the second along all pairs of them."""

    def pairs(a: Tensor) -> Tensor:
        return vmap(lambda b: along_twice(g, x, function, a, b))(vectors)

    return along(g, x, function, vectors), vmap(pairs)(vectors)
