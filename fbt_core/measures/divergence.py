"""How far two scores on the same factors lead attention apart, row by row."""

from __future__ import annotations

import math
from functools import partial

from torch import Tensor

from fbt_core.measures.attention import entropy
from fbt_core.measures.maps import Rows, by_two_rows
from fbt_core.measures.table import Measure


def total_variation(a: Rows, b: Rows) -> Tensor:
    """1/2 sum_j |a_ij - b_ij| of each row, in [0, 1]: the share of attention that moves to other keys."""
    return ((a - b).abs().sum(-1) / 2).clamp_max(1)


def jensen_shannon(a: Rows, b: Rows) -> Tensor:
    """H((a + b)/2) - (H(a) + H(b))/2 of each row, in nats, in [0, ln 2]. Exact to 1e-15 absolute."""
    return (entropy((a + b) / 2) - (entropy(a) + entropy(b)) / 2).clamp(0, math.log(2))


_AXES = ("layer", "head", "token")
_OPTIONS = ("score_a", "score_b", "alpha", "layer", "head")

ROWS = (
    Measure(
        "total_variation", r"\operatorname{TV}", "Total variation between two scores", _AXES, "", "[0, 1]",
        r"\tfrac12 \sum_j \lvert a_{ij} - b_{ij} \rvert", "Levin & Peres, Markov Chains and Mixing Times, 4.1",
        partial(by_two_rows, total_variation), _OPTIONS,
    ),
    Measure(
        "jensen_shannon", r"\operatorname{JS}", "Jensen-Shannon divergence between two scores", _AXES, "nats",
        "[0, ln 2]", r"H\bigl(\tfrac{a_i + b_i}{2}\bigr) - \tfrac12 \bigl(H(a_i) + H(b_i)\bigr)", "Lin 1991",
        partial(by_two_rows, jensen_shannon), _OPTIONS,
    ),
)  # fmt: skip
"""The rows of this room."""
