"""Singular values by the cheapest way that is exact enough, and how exact that is.

The eigenvalues of a Gram matrix cost a third to a fifth of a singular value decomposition, but squaring costs digits:
a value s of X comes out within e / (s + sqrt(s^2 - e)), e = (m + n) eps ||X||_F^2, so what is below 1e-8 of the largest
is rounding. Each function here knows what its answer needs, and takes the decomposition of X itself for the rest.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64

Matrix = Float64[np.ndarray, "row column"]
Values = Float64[np.ndarray, " value"]

DENSE = 128
"""The smaller side up to which the decomposition itself takes a few milliseconds: nothing is to be saved."""

ENTROPY = 1e-5
"""Nats by which the entropy of the normalised values may be off, and so the share by which their effective rank may:
a hundredth of what a figure shows. The bound is far from sharp; residuals of SmolLM2-135M stay within 1e-8."""

TOP_DIGITS = 1e-4
"""Lanczos works on X^T X as well: a second value below this share of the first would have fewer than eight digits."""

EPS = float(np.finfo(np.float64).eps)


def singular_values(X: Matrix, eps: float | None = None) -> Values:
    """Singular values, descending; empty for an empty matrix. Raises ``LinAlgError`` for what is not finite.

    By the Gram matrix where that moves the entropy of s / sum s by ``ENTROPY`` nats at most, and no value across
    ``eps`` times the largest. Then the largest has all its digits, and one below 1e-8 of it has none.
    """
    if not X.size:
        return np.zeros(0)
    if min(X.shape) > DENSE:
        values, off = by_gram(X)
        if entropy_bound(values, off) <= ENTROPY and (eps is None or not _crosses(values, off, eps)):
            return values
    return np.linalg.svd(X, compute_uv=False)


def by_gram(X: Matrix) -> tuple[Values, Values]:
    """Singular values from the eigenvalues of the smaller Gram matrix, descending, and by how much each may be off.

    The bound e of an eigenvalue is that of the product (Higham, Accuracy and Stability, 3.13: at most m eps
    ||X||_F^2) and of LAPACK's eigenvalues, whose backward error is a modest multiple of eps ||X||^2 and here n of them.
    """
    size = max(X.max(initial=0.0), -X.min(initial=0.0))
    if not np.isfinite(size):
        raise np.linalg.LinAlgError("got a matrix with NaN or infinite values, expected finite ones")
    if size == 0:
        return np.zeros(min(X.shape)), np.zeros(min(X.shape))
    size = 1.0 if 1e-100 < size < 1e100 else size  # else a square would overflow, or one that counts underflow
    scaled = X if size == 1 else X / size
    squares = np.linalg.eigvalsh(scaled @ scaled.T if X.shape[0] < X.shape[1] else scaled.T @ scaled)[::-1]
    squares = np.maximum(squares, 0.0)
    e = sum(X.shape) * EPS * float(squares.sum())
    values = np.sqrt(squares)
    least = np.sqrt(np.maximum(squares - e, 0.0))
    off = np.maximum(values - least, np.sqrt(squares + e) - values)
    return values * size, off * size


def entropy_bound(values: Values, off: Values) -> float:
    """Nats by which the entropy H of s / sum s may be off where each s_i may be off by ``off``; inf where it is open.

    H = ln S - T / S, with S = sum s and T = sum s ln s for s / s_1 in [0, 1]. Where s moves by d, s ln s moves by at
    most d (1 + |ln(s - d)|) and, since its slope is steepest at 0, by d (1 + |ln d|) at most.
    """
    if not (values.size and values[0] > 0):
        return 0.0
    s, d = values / values[0], off / values[0]
    S, dS = float(s.sum()), float(d.sum())
    if d.max() > np.exp(-1) or dS >= S / 2:
        return float("inf")
    with np.errstate(divide="ignore"):
        slope = 1 + np.minimum(np.abs(np.log(np.maximum(s - d, 0.0))), np.abs(np.log(np.maximum(d, 1e-300))))
    dT = float((d * slope).sum())
    T = float(-(s[s > 0] * np.log(s[s > 0])).sum())
    return dS / (S - dS) + dT / (S - dS) + (T + dT) * dS / (S * (S - dS))


def _crosses(values: Values, off: Values, eps: float) -> bool:
    """Whether rounding may have moved a value across ``eps`` times the largest."""
    return bool((np.abs(values - eps * values[0]) <= off + eps * off[0]).any())


def two_largest(X: Matrix) -> tuple[float, float]:
    """The two largest singular values, to eight digits; the second is 0 where there is one value only.

    By Lanczos (ARPACK) with a fixed start where X is large: some dozens of products with X, in place of the 8/3 n^3 of
    all values. From the decomposition where the second is below ``TOP_DIGITS`` of the first, where the numbers are too
    small or large to be squared, and where Lanczos does not converge. Raises ``LinAlgError`` for what is no number.
    """
    if min(X.shape) > DENSE and 1e-100 < np.abs(X).max() < 1e100:
        first, second = _by_lanczos(X)
        if second > TOP_DIGITS * first:
            return first, second
    values = np.linalg.svd(X, compute_uv=False)
    return float(values[0]), float(values[1]) if len(values) > 1 else 0.0


def _by_lanczos(X: Matrix) -> tuple[float, float]:
    """The two largest, or zeros when it does not converge."""
    from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh

    width = X.shape[1]
    square = LinearOperator((width, width), matvec=lambda x: X.T @ (X @ x), dtype=X.dtype)
    start, rng = np.cos(np.arange(width) + 1.0), np.random.default_rng(0)  # fixed, so that the answer is
    try:
        squares = eigsh(square, k=2, which="LA", v0=start, rng=rng, return_eigenvectors=False)
    except ArpackError:
        return 0.0, 0.0
    second, first = np.sqrt(np.sort(np.maximum(squares, 0.0)))
    return float(first), float(second)
