"""Curvature of a metric function, in units of 1 / (length under g)^2 and float64. Conventions:

    R(X, Y) Z = D_X D_Y Z - D_Y D_X Z - D_[X,Y] Z,    R_ijkl = <R(e_i, e_j) e_k, e_l>,
    K(u, v) = R(u, v, v, u) / (|u|^2 |v|^2 - <u, v>^2),    Ric_jk = g^il R_ijkl,    S = g^jk Ric_jk,

which are positive on a sphere.

For constant u and v, with Gamma of the Levi-Civita connection,

    R(u, v, v, u) = D_u D_v <u, v> - 1/2 D_u D_u <v, v> - 1/2 D_v D_v <u, u>
                    + |Gamma(u, v)|^2 - <Gamma(u, u), Gamma(v, v)>.

See "Geometry of the field" in docs/mathematics.md.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor
from torch.func import vmap

from fbt_core.geometry.connection import christoffel_low
from fbt_core.geometry.frame import along, along_twice, christoffel_frame, derivatives, frame
from fbt_core.geometry.function import MetricFunction, Point, Scalar, Vector

TENSOR_DIM = 32
"""The largest d for the full tensor: its d^4 numbers are 8 MB a token there, and 128 MB at twice that."""

EXACT_DIM = 128
"""The largest d for the exact scalar curvature of a low-rank metric: d^3 numbers are 17 MB a token there."""

Tensor4 = Float[Tensor, "dim dim dim dim"]


def sectional(g: MetricFunction, x: Point, u: Vector, v: Vector) -> Scalar:
    """K of the plane of u and v, which are made g-orthonormal first: near-parallel pairs would lose digits.

    NaN where u and v are parallel, or g is not positive definite.
    """
    u, v = orthonormal(g, x, u, v)
    if g.factor is not None:
        return _sectional_low_rank(g, x, u[None], v[None])[0]

    def second(a: Vector, b: Vector, c: Vector, e: Vector) -> Tensor:
        return along_twice(g, x, lambda y: g.inner(y, c, e), a, b)

    mixed, first, last = (christoffel_low(g, x, a, b) for a, b in ((u, v), (u, u), (v, v)))
    bent = second(u, v, u, v) - second(u, u, v, v) / 2 - second(v, v, u, u) / 2
    return bent + mixed @ g.raise_(x, mixed) - first @ g.raise_(x, last)


def sectional_planes(
    g: MetricFunction, x: Point, u: Float[Tensor, "plane dim"], v: Float[Tensor, "plane dim"]
) -> Float[Tensor, " plane"]:
    """K of many planes at one point; u and v are orthonormal under g. What planes share is computed once.

    Of a low-rank metric: d first derivatives of U, and three second ones a plane.
    """
    if g.factor is not None:
        return _sectional_low_rank(g, x, u, v)
    return vmap(lambda a, b: sectional(g, x, a, b))(u, v)


def riemann_frame(
    g: MetricFunction, x: Point, largest: int = TENSOR_DIM
) -> tuple[Tensor4, Float[Tensor, "dim dim"], Scalar]:
    """R_ijkl in a g-orthonormal frame, that frame (its columns), and the size of what is subtracted to get R, which
    times the machine epsilon is its rounding. Raises ``ValueError`` for d > ``largest``."""
    if g.dim > largest:
        raise ValueError(f"got dimension {g.dim}, expected at most {largest}: the full tensor has d^4 numbers")
    F = frame(g, x)
    first, second = derivatives(g, x, F)
    gamma = christoffel_frame(first)
    pairs = (second + second.permute(2, 3, 0, 1)) / 2 + torch.einsum("ikm,jlm->ikjl", gamma, gamma)
    return pairs.permute(0, 2, 1, 3) - pairs.permute(0, 2, 3, 1), F, pairs.abs().amax()


def riemann(g: MetricFunction, x: Point) -> Tensor4:
    """R_ijkl with all indices down, in the coordinates of tangent vectors. ``ValueError`` for d > ``TENSOR_DIM``."""
    R, F, _ = riemann_frame(g, x)
    back = torch.linalg.inv(F)
    return torch.einsum("abcd,ai,bj,ck,dl->ijkl", R, back, back, back, back)


def ricci(g: MetricFunction, x: Point) -> Float[Tensor, "dim dim"]:
    """Ric_jk, both indices down. Raises ``ValueError`` for d > ``TENSOR_DIM``."""
    R, F, _ = riemann_frame(g, x)
    back = torch.linalg.inv(F)
    return back.mT @ torch.einsum("ijki->jk", R) @ back


def scalar(g: MetricFunction, x: Point) -> Scalar:
    """The scalar curvature S = d (d - 1) times the mean K of all planes, exactly; 0 for d = 1.

    Raises ``ValueError`` where d is too large: sample it.
    """
    return scalar_and_rounding(g, x)[0]


def scalar_and_rounding(g: MetricFunction, x: Point) -> tuple[Scalar, Scalar]:
    """The same, and the size of its rounding error.

    Of a low-rank metric without the full tensor, in d (r + 1) second derivatives (``_scalar_low_rank``), up to
    ``EXACT_DIM``; else through the tensor.
    """
    epsilon = torch.finfo(x.dtype).eps
    if g.factor is None:
        R, _, size = riemann_frame(g, x)
        return torch.einsum("ijji->", R), epsilon * g.dim * (g.dim - 1) * size
    if g.dim > EXACT_DIM:
        raise ValueError(f"got dimension {g.dim}, expected at most {EXACT_DIM}: use scalar_sampled")
    terms = _scalar_low_rank(g, x)
    return terms.sum(), epsilon * g.dim * terms.abs().sum()


def orthonormal(g: MetricFunction, x: Point, u: Vector, v: Vector) -> tuple[Vector, Vector]:
    """Gram-Schmidt under g, twice over v for its digits."""
    u = u / g.inner(x, u, u).sqrt()
    for _ in range(2):
        v = v - g.inner(x, u, v) * u
        v = v / g.inner(x, v, v).sqrt()
    return u, v


def _sectional_low_rank(g: MetricFunction, x: Tensor, u: Tensor, v: Tensor) -> Tensor:
    """g = I + U U^T: <c, e> = c . e + (U^T c) . (U^T e), so derivatives of U are all that is needed."""
    assert g.factor is not None
    factor = g.factor
    U = factor(x)
    J = along(g, x, factor, torch.eye(g.dim, dtype=x.dtype, device=x.device))  # k i r: the derivative along e_k
    planes = vmap(lambda a, b: _plane(g, x, U, J, a, b))
    return planes(u, v)


def _plane(g: MetricFunction, x: Tensor, U: Tensor, J: Tensor, u: Tensor, v: Tensor) -> Tensor:
    """K of one orthonormal plane from U, its Jacobian, and three second derivatives of U."""
    assert g.factor is not None
    factor = g.factor
    du, dv = (torch.tensordot(a, J, 1) for a in (u, v))  # i r
    pairs = torch.stack([torch.stack([u, v]), torch.stack([u, u]), torch.stack([v, v])])
    uv, uu, vv = vmap(lambda pair: along_twice(g, x, factor, pair[0], pair[1]))(pairs)
    pu, pv = u @ U, v @ U
    bent = (u @ uv) @ pv + pu @ (v @ uv) - (v @ uu) @ pv - (u @ vv) @ pu
    bent = bent + (u @ du) @ (v @ dv) + (u @ dv) @ (v @ du) - (v @ du).square().sum() - (u @ dv).square().sum()

    def low(a: Tensor, da: Tensor, pa: Tensor, b: Tensor, db: Tensor, pb: Tensor) -> Tensor:
        changes = da @ pb + U @ (b @ da) + db @ pa + U @ (a @ db)
        return (changes - torch.einsum("kir,i,r->k", J, a, pb) - torch.einsum("kir,i,r->k", J, b, pa)) / 2

    mixed, first, last = low(u, du, pu, v, dv, pv), low(u, du, pu, u, du, pu), low(v, dv, pv, v, dv, pv)
    return bent + mixed @ g.raise_(x, mixed) - first @ g.raise_(x, last)


def _scalar_low_rank(g: MetricFunction, x: Tensor) -> Float[Tensor, " term"]:
    """The terms of S = sum_ij D_i D_j g_ij - D_i D_i g_jj + |Gamma_ij|^2 - <Gamma_ii, Gamma_jj>, the sums over a
    g-orthonormal frame e_i.

    With U in the frame (u = F^T U) the first sum has its second derivatives in sum_i e_i . D_i D_w U_r along the r
    vectors w = g^{-1} U_r only, and the second in D_i D_i U: d (r + 1) of them in place of d (d + 1) / 2.
    """
    assert g.factor is not None
    factor = g.factor
    F = frame(g, x)
    basis, u = F.mT, F.mT @ factor(x)  # rows e_i; i r
    M = torch.einsum("iar,ab->ibr", along(g, x, factor, basis), F)  # M_ibr = e_b . D_i U_r
    once = torch.einsum("iar,br->iab", M, u)
    gamma = christoffel_frame(once + once.mT)
    towards = (F @ u).mT  # rows g^{-1} U_r

    def mixed(e: Tensor) -> Tensor:
        """sum_r e . D_w D_e U_r."""
        return vmap(lambda w: e @ along_twice(g, x, factor, w, e))(towards).diagonal().sum()

    def repeated(e: Tensor) -> Tensor:
        """sum_b u_b . (e_b . D_e D_e U)."""
        return (u * (basis @ along_twice(g, x, factor, e, e))).sum()

    divergence = 2 * vmap(mixed)(basis).sum() + torch.einsum("iir->r", M).square().sum()
    divergence = divergence + torch.einsum("jir,ijr->", M, M)
    laplacian = 2 * vmap(repeated)(basis).sum() + 2 * M.square().sum()
    bent = (gamma.square().sum(), -torch.einsum("iik->k", gamma).square().sum())
    return torch.stack([divergence, -laplacian, *bent])
