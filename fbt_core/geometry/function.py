"""A Riemannian metric given as a function of the point. Everything here is for one point; callers batch with vmap."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.func import grad, vmap

Point = Float[Tensor, " space"]
Vector = Float[Tensor, " dim"]
Scalar = Float[Tensor, ""]


@dataclass(frozen=True)
class MetricFunction:
    """The metric x -> g_x on the d-dimensional slice x + E a of a space of dimension D.

    Points are (D,), tangent vectors (d,): the vector a moves the point by E a. With a ``factor`` U the metric is
    g = I_d + U U^T, and every operation costs O(d r + r^3). All derivatives of ``inner`` and ``factor`` are taken by
    torch.func, so they must be smooth functions of x, and take one point.
    """

    dim: int  # d
    inner: Callable[[Tensor, Tensor, Tensor], Tensor]  # (x (D,), a (d,), b (d,)) -> g_x(a, b)
    factor: Callable[[Tensor], Tensor] | None = None  # x -> U (d, r)
    inclusion: Tensor | None = None  # E (D, d); None where D = d and E = I
    name: str = ""  # for people
    matrix: Callable[[Tensor], Tensor] | None = None  # x -> g (d, d), where that costs less than d^2 inner products

    @classmethod
    def low_rank(
        cls, factor: Callable[[Tensor], Tensor], dim: int, inclusion: Tensor | None = None, name: str = ""
    ) -> MetricFunction:
        """g = I_d + U U^T for x -> U (d, r)."""

        def inner(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
            U = factor(x)
            return a @ b + (a @ U) @ (b @ U)

        return cls(dim, inner, factor, inclusion, name)

    def embed(self, a: Vector) -> Point:
        """E a, by how much the vector a moves the point."""
        return a if self.inclusion is None else self.inclusion @ a

    def restrict(self, covector: Point) -> Vector:
        """E^T w: of a gradient in the space, its part along the slice."""
        return covector if self.inclusion is None else self.inclusion.mT @ covector

    def lower(self, x: Point, a: Vector) -> Vector:
        """g_x a, the covector of a vector."""
        if self.factor is not None:
            U = self.factor(x)
            return a + U @ (a @ U)
        if self.matrix is not None:
            return self.matrix(x) @ a
        return grad(lambda c: self.inner(x, c, a))(torch.zeros_like(a))  # inner is linear in c

    def raise_(self, x: Point, a: Vector) -> Vector:
        """g_x^{-1} a, the vector of a covector; by Woodbury, or by Cholesky. NaN where g is not positive."""
        if self.factor is None:
            return _solve(self.dense(x), a)
        U = self.factor(x)
        return a - U @ _solve(_gram(U), a @ U)

    def dense(self, x: Point) -> Float[Tensor, "dim dim"]:
        """g_x as a matrix."""
        eye = torch.eye(self.dim, dtype=x.dtype, device=x.device)
        if self.factor is not None:
            U = self.factor(x)
            return eye + U @ U.mT
        if self.matrix is not None:
            return self.matrix(x)
        return vmap(lambda a: self.lower(x, a))(eye)

    def logdet(self, x: Point) -> Scalar:
        """log det g_x in nats; half of it is the log of the volume element. NaN where g is not positive."""
        g = self.dense(x) if self.factor is None else _gram(self.factor(x))
        return 2 * _cholesky(g).diagonal(dim1=-2, dim2=-1).log().sum(-1)


def _gram(U: Tensor) -> Tensor:
    """I_r + U^T U."""
    return torch.eye(U.shape[-1], dtype=U.dtype, device=U.device) + U.mT @ U


def _cholesky(g: Tensor) -> Tensor:
    """The lower factor; NaN, and no error, where there is none: one bad token must not end a batch."""
    factor, info = torch.linalg.cholesky_ex(g)
    return torch.where(info[..., None, None] == 0, factor, torch.nan)


def _solve(g: Tensor, a: Tensor) -> Tensor:
    return torch.cholesky_solve(a.unsqueeze(-1), _cholesky(g)).squeeze(-1)
