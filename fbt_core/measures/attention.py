"""What one attention map is like: how wide its rows look, how much rows differ, how far it is from rank one."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from fbt_core.measures.maps import Map, Rows, by_map, by_row, tiles
from fbt_core.measures.spectra import two_largest
from fbt_core.measures.table import Measure, Measured
from fbt_core.measures.tokens import to_numpy
from fbt_core.trace import Trace


def entropy(rows: Rows) -> Tensor:
    """H(a_i) = - sum_j a_ij ln a_ij of each row, in nats, in [0, ln L]; 0 for the first row of a causal map."""
    return torch.special.entr(rows).sum(-1).clamp_min(0)


def exp_entropy(rows: Rows) -> Tensor:
    """exp H(a_i) of each row, in [1, L]: the number of keys that it looks at."""
    return entropy(rows).exp()


def dobrushin(A: Map) -> float:
    """1/2 max over rows i, k of ||A_i - A_k||_1, in [0, 1]; below 1 it bounds how much A contracts any spread.

    Exact, from all pairs of rows in tiles: O(L^3) time, about half a second a head at L = 1,024 on one core, and O(L)
    memory beyond A.
    """
    blocks = [A[rows] for rows in tiles(len(A))]
    pairs = [(a, b) for i, a in enumerate(blocks) for b in blocks[i:]]
    return float(max(torch.cdist(a, b, p=1.0).max() for a, b in pairs) / 2)


def spectral_gap(A: Map) -> float:
    """s_1 / s_2 of the map's singular values, in [1, inf]; inf where rows are equal, or there is one token.

    A second value below L machine epsilons of the first is rounding and counts as 0. By some dozens of products with
    the map, O(L^2) time each; by a full SVD, O(L^3), for a gap beyond 10,000.
    """
    first, second = two_largest(to_numpy(A))
    return first / second if second > len(A) * torch.finfo(A.dtype).eps * first else float("inf")


def _read_gap(trace: Trace, *, score: str, alpha: float | None) -> Measured:
    """The gap, with a note where it is infinite."""
    found = by_map(spectral_gap, trace, score=score, alpha=alpha)
    infinite = int((found.values == float("inf")).sum())
    named = (f"{infinite} of {found.values.size} maps have rank one: s_1/s_2 is infinite",) if infinite else ()
    return Measured(found.values, (*found.notes, *named))


_ROW, _MAP = ("layer", "head", "token"), ("layer", "head")
_OPTIONS = ("score", "alpha", "layer", "head")

ROWS = (
    Measure(
        "entropy", r"H(a_i)", "Attention entropy", _ROW, "nats", "[0, ln L]", r"-\sum_j a_{ij} \ln a_{ij}",
        "Shannon 1948", partial(by_row, entropy), _OPTIONS,
    ),
    Measure(
        "exp_entropy", r"e^{H(a_i)}", "Keys attended to", _ROW, "keys", "[1, L]",
        r"\exp\Bigl(-\sum_j a_{ij} \ln a_{ij}\Bigr)", "perplexity of a row of attention", partial(by_row, exp_entropy),
        _OPTIONS,
    ),
    Measure(
        "dobrushin", r"\tau_1(A)", "Dobrushin coefficient", _MAP, "", "[0, 1]",
        r"\tfrac12 \max_{i,k} \lVert A_i - A_k \rVert_1", "Dobrushin 1956", partial(by_map, dobrushin), _OPTIONS,
    ),
    Measure(
        "spectral_gap", r"s_1/s_2", "Spectral gap of attention", _MAP, "", "[1, inf]", r"s_1(A) / s_2(A)",
        "Nait Saada et al., arXiv 2410.07799", _read_gap, _OPTIONS,
    ),
)  # fmt: skip
"""The rows of this room."""
