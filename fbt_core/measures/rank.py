"""How many directions the tokens of a layer span: four readings of the singular values of its residual matrix.

All are functions of the singular values s, taken in float64: by a Gram matrix where the answer needs no value that this
would lose, else by an SVD of the matrix itself (``spectra``). All are invariant to a scaling, to a rotation, and to the
order of the tokens.
A zero matrix carries no signal and has rank 0 by every one of them, also where the textbook formula is 0/0.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Float64

from fbt_core.measures.spectra import singular_values
from fbt_core.measures.table import Measure, Measured
from fbt_core.measures.tokens import TOKEN_OPTIONS, Matrix, TokenMatrix, by_layer
from fbt_core.trace import Trace

Spectrum = Float64[np.ndarray, " value"]


def effective_rank(singular_values: Spectrum) -> float:
    """exp of the entropy of s / sum s, in [1, number of values]; 0 for a zero matrix (Roy & Vetterli 2007)."""
    if not (total := _scaled(singular_values).sum()):
        return 0.0
    p = _scaled(singular_values) / total
    p = p[p > 0]
    return float(np.exp(-(p * np.log(p)).sum()))


def stable_rank(singular_values: Spectrum) -> float:
    """sum s^2 / s_1^2 = ||X||_F^2 / ||X||_2^2, in [1, rank]; 0 for a zero matrix."""
    return float((_scaled(singular_values) ** 2).sum())


def participation_ratio(singular_values: Spectrum) -> float:
    """(sum s^2)^2 / sum s^4, in [1, rank]; 0 for a zero matrix."""
    squares = _scaled(singular_values) ** 2
    return float(squares.sum() ** 2 / (squares**2).sum()) if squares.any() else 0.0


def numerical_rank(singular_values: Spectrum, eps: float) -> float:
    """The number of s > eps s_1, in [1, number of values]; 0 for a zero matrix."""
    return float((_scaled(singular_values) > eps).sum())


def spectrum(X: Matrix, eps: float | None = None) -> Spectrum:
    """Singular values, descending, as exact as the ranks of this module need them; empty where there is no token.

    For a numerical rank say its ``eps``. What is below 1e-8 of the largest may be rounding.
    """
    return singular_values(X, eps)


def _scaled(singular_values: Spectrum) -> Spectrum:
    """s / s_1, so that no power overflows; all 0 for a zero matrix."""
    top = singular_values.max(initial=0.0)
    return singular_values / top if top > 0 else np.zeros_like(singular_values)


def _effective(matrix: TokenMatrix) -> float:
    return effective_rank(spectrum(matrix.X))


def _stable(matrix: TokenMatrix) -> float:
    return stable_rank(spectrum(matrix.X))


def _participation(matrix: TokenMatrix) -> float:
    return participation_ratio(spectrum(matrix.X))


def _numerical(eps: float, matrix: TokenMatrix) -> float:
    return numerical_rank(spectrum(matrix.X, eps), eps)


def default_eps(trace: Trace) -> float:
    """max(L, D) times the machine epsilon of the dtype that the residuals were computed in."""
    residual = trace.layers[0].residual_out
    return max(residual.shape) * torch.finfo(residual.dtype).eps


def _read_numerical(trace: Trace, *, eps: float | None, **options: Any) -> Measured:
    """The numerical rank, and a note that states its eps."""
    used = default_eps(trace) if eps is None else eps
    found = by_layer(partial(_numerical, used), trace, **options)
    return Measured(found.values, (f"eps = {used:.3g}", *found.notes))


ROWS = (
    Measure(
        "effective_rank", r"\operatorname{erank}", "Effective rank", ("layer",), "", "[1, min(L, D)], 0 for X = 0",
        r"\exp\Bigl(-\sum_i p_i \ln p_i\Bigr),\quad p_i = s_i / \textstyle\sum_k s_k",
        "Roy & Vetterli 2007, The effective rank", partial(by_layer, _effective), TOKEN_OPTIONS,
    ),
    Measure(
        "stable_rank", r"\operatorname{srank}", "Stable rank", ("layer",), "", "[1, min(L, D)], 0 for X = 0",
        r"\lVert X \rVert_F^2 / \lVert X \rVert_2^2 = \sum_i s_i^2 / s_1^2",
        "Rudelson & Vershynin, arXiv math/0503442", partial(by_layer, _stable), TOKEN_OPTIONS,
    ),
    Measure(
        "participation_ratio", r"\operatorname{PR}", "Participation ratio", ("layer",), "",
        "[1, min(L, D)], 0 for X = 0", r"\Bigl(\sum_i s_i^2\Bigr)^2 / \sum_i s_i^4",
        "inverse participation ratio of the covariance spectrum", partial(by_layer, _participation), TOKEN_OPTIONS,
    ),
    Measure(
        "numerical_rank", r"\operatorname{rank}_\epsilon", "Numerical rank", ("layer",), "",
        "whole numbers 1 to min(L, D), 0 for X = 0", r"\#\{i : s_i > \epsilon\, s_1\}",
        "Golub & Van Loan, Matrix Computations, 5.4", _read_numerical, ("eps", *TOKEN_OPTIONS),
    ),
)  # fmt: skip
"""The rows of this room."""
