"""The Levi-Civita connection of a metric function, by directional derivatives; no d x d x d tensor is formed.

    Gamma_low(a, b)_k = 1/2 ( [D_a g] b + [D_b g] a - grad (a^T g b) )_k,    Gamma(a, b) = g^{-1} Gamma_low(a, b)

Both are symmetric in a and b, and bilinear. A geodesic is x'' = -Gamma(x', x'), a vector is carried in parallel by
w' = -Gamma(x', w). See "Geometry of the field" in docs/mathematics.md.
"""

from __future__ import annotations

from torch import Tensor
from torch.func import grad, jvp

from fbt_core.geometry.function import MetricFunction, Point, Vector


def christoffel_low(g: MetricFunction, x: Point, a: Vector, b: Vector) -> Vector:
    """The Christoffel symbols of the first kind with two slots filled, a covector."""
    if g.factor is not None:
        return _low_rank(g, x, a, b)
    changes = _change(g, x, a, b) + _change(g, x, b, a)
    return (changes - g.restrict(grad(lambda y: g.inner(y, a, b))(x))) / 2


def christoffel(g: MetricFunction, x: Point, a: Vector, b: Vector) -> Vector:
    """Gamma(a, b), the Christoffel symbols of the second kind with two slots filled, a vector."""
    return g.raise_(x, christoffel_low(g, x, a, b))


def _change(g: MetricFunction, x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """[D_a g] b."""
    return jvp(lambda y: g.lower(y, b), (x,), (g.embed(a),))[1]


def _low_rank(g: MetricFunction, x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """The same with g = I + U U^T: two derivatives of U along vectors, and one gradient."""
    assert g.factor is not None
    factor = g.factor
    U, along_a = jvp(factor, (x,), (g.embed(a),))
    _, along_b = jvp(factor, (x,), (g.embed(b),))
    changes = along_a @ (b @ U) + U @ (b @ along_a) + along_b @ (a @ U) + U @ (a @ along_b)
    return (changes - g.restrict(grad(lambda y: (a @ factor(y)) @ (b @ factor(y)))(x))) / 2
