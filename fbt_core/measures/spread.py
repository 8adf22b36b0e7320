"""How far the tokens of a layer are from being all the same: distance from the matrix of their mean, and angles."""

from __future__ import annotations

from functools import partial

import numpy as np

from fbt_core.measures.table import Measure
from fbt_core.measures.tokens import TOKEN_OPTIONS, Matrix, TokenMatrix, by_layer, centred, unit

NAN = float("nan")


def dong_residual(X: Matrix) -> float:
    """sqrt(||Xc||_1 ||Xc||_inf) / sqrt(||X||_1 ||X||_inf) in [0, 2), 0 for equal tokens; NaN for a zero matrix.

    ||.||_1 is the largest column sum of absolute values and ||.||_inf the largest row sum (arXiv 2103.03404); Xc is X
    minus the mean of its rows, the nearest matrix of equal rows in the Frobenius norm.
    """
    return _ratio(_column_row_norm(centred(X)), _column_row_norm(X))


def mu(X: Matrix) -> float:
    """||Xc||_F / ||X||_F in [0, 1]: 0 for equal tokens, 1 for a zero mean; NaN for a zero matrix (2405.18781)."""
    return _ratio(float(np.linalg.norm(centred(X))), float(np.linalg.norm(X)))


def mean_cosine(X: Matrix) -> float:
    """Mean of cos(x_i, x_j) over pairs i != j, in [-1/(n-1), 1] for n tokens (2206.03126).

    Zero tokens have no direction and are left out; NaN where fewer than two others remain. Cost O(L D).
    """
    rows = unit(X)
    rows = rows[rows.any(1)]
    n = len(rows)
    if n < 2:
        return NAN
    # sum over all ordered pairs is ||sum of rows||^2; the n pairs of a token with itself are 1 each
    return float(np.clip(((rows.sum(0) ** 2).sum() - n) / (n * (n - 1)), -1.0, 1.0))


def _column_row_norm(X: Matrix) -> float:
    sizes = np.abs(X)
    return float(np.sqrt(sizes.sum(0).max(initial=0.0)) * np.sqrt(sizes.sum(1).max(initial=0.0)))


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole > 0 else NAN


def _dong(matrix: TokenMatrix) -> float:
    return dong_residual(matrix.X)


def _mu(matrix: TokenMatrix) -> float:
    return mu(matrix.X)


def _cosine(matrix: TokenMatrix) -> float:
    return mean_cosine(matrix.X)


ROWS = (
    Measure(
        "dong_residual", r"\rho", "Dong residual", ("layer",), "", "[0, 2)",
        r"\sqrt{\lVert X_c \rVert_1 \lVert X_c \rVert_\infty} \Big/ \sqrt{\lVert X \rVert_1 \lVert X \rVert_\infty},"
        r"\quad X_c = X - \tfrac1L \mathbf 1 \mathbf 1^\top X",
        "Dong et al., arXiv 2103.03404", partial(by_layer, _dong), TOKEN_OPTIONS,
    ),
    Measure(
        "mu", r"\mu", "Relative spread of tokens", ("layer",), "", "[0, 1]",
        r"\lVert X_c \rVert_F / \lVert X \rVert_F", "Wu et al., arXiv 2405.18781", partial(by_layer, _mu),
        TOKEN_OPTIONS,
    ),
    Measure(
        "mean_cosine", r"\overline{\cos}", "Mean cosine between tokens", ("layer",), "", "[-1/(L-1), 1]",
        r"\frac{1}{L(L-1)} \sum_{i \ne j} \frac{x_i \cdot x_j}{\lVert x_i \rVert \lVert x_j \rVert}",
        "Noci et al., arXiv 2206.03126", partial(by_layer, _cosine), TOKEN_OPTIONS,
    ),
)  # fmt: skip
"""The rows of this room."""
