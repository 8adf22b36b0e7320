"""Which term of the score does the work: the shares of Eq. 28 in its row-centred variance, head by head."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from fbt_core.attention.decompose import TERMS, score_shares
from fbt_core.measures.maps import each_head
from fbt_core.measures.table import Measure, Measured
from fbt_core.trace import LayerTrace, Trace


def _read_shares(trace: Trace, *, of: str) -> Measured:
    """(layer, head, term) in the order of ``TERMS``; NaN, with a note, where scores do not vary along any row."""

    def shares(layer: LayerTrace) -> Tensor:
        return score_shares(layer.given, of)

    found = each_head(shares, trace, ("riemannian",), (len(TERMS),))
    undefined = int(np.isnan(found.values).any(-1).sum())
    named = f"{undefined} of {found.values[..., 0].size} heads have scores that do not vary along a row: shares are nan"
    return Measured(found.values, (*found.notes, named) if undefined and not found.notes else found.notes)


ROWS = (
    Measure(
        "score_shares", r"\phi_t", "Share of each term of the score", ("layer", "head", "term"), "",
        f"(-inf, inf), the {len(TERMS)} terms sum to 1",
        r"\operatorname{cov}(\tilde s_t, \tilde s) / \operatorname{var}(\tilde s),"
        r"\quad \tilde s_{ij} = s_{ij} - \langle s_i \rangle_j",
        "Eq. 28 of arXiv 2608.01283; docs/mathematics.md, items 4 and 6", _read_shares, ("of", "layer", "head"),
    ),
)  # fmt: skip
"""The rows of this room."""
