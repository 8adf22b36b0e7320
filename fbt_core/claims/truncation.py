"""U cut to its top directions, and what that leaves of the metric and of the score matrix: for claim C14."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Float, Float64
from torch import Tensor

from fbt_core.claims.chart import Chart, Curve, Mark
from fbt_core.claims.evidence import Evidence, Head
from fbt_core.claims.fields import chosen
from fbt_core.geometry.metric import LowRankMetric
from fbt_core.measures.rank import numerical_rank

EVERY = 4
"""Up to this rank every number of columns is tried, beyond it the powers of two."""

HEADS = 6
"""Of whose score matrices the rank is taken."""


def top(U: Float[Tensor, "*batch dim rank"], count: int) -> Float[Tensor, "*batch dim count"]:
    """U's columns turned so that they are orthogonal, the ``count`` longest of them: the best rank-``count`` A."""
    _, vectors = torch.linalg.eigh(U.mT @ U)
    return U @ vectors.flip(-1)[..., :count]


def tried(rank: int) -> list[int]:
    """Numbers of columns, 0 and ``rank`` among them."""
    if rank <= EVERY:
        return list(range(rank + 1))
    return sorted({0, *(2**power for power in range(rank.bit_length()) if 2**power < rank), rank})


def energy(evidence: Evidence, count: int) -> Float64[np.ndarray, "layer head"]:
    """Mean over tokens of the share of tr K in the ``count`` largest eigenvalues of K."""
    found = {}
    for one in evidence.metric_heads:
        values = torch.linalg.eigvalsh(one.factors.U[0].mT @ one.factors.U[0]).clamp_min(0).flip(-1)
        total = values.sum(-1)
        share = values[:, :count].sum(-1)[total > 0] / total[total > 0]
        found[one.place, one.head] = float(share.mean())
    return evidence.grid(found)


def score_ranks(evidence: Evidence, ranks: list[int]) -> Chart:
    """Numerical rank of the score matrix with the top columns of U, its median over some heads."""
    heads = evidence.metric_heads
    some = [heads[i] for i in chosen(len(heads), HEADS)]
    found = np.array([[_score_rank(one, count) for count in ranks] for one in some])
    f = some[0].factors
    curve = Curve("median head", np.array(ranks, float), np.median(found, 0), found.min(0), found.max(0))
    return Chart("Rank of the score matrix by columns of U kept", "columns of U kept", "numerical rank (dimensionless)",
                 (curve,), (Mark("y", float(f.q.shape[-1] + 2), "Gram: d + 2"),
         Mark("y", float(f.q.shape[-2]), "tokens: no rank is above")),
                 note=f"{f.q.shape[-2]} tokens; band: all of {len(some)} heads")  # fmt: skip


def _score_rank(one: Head, count: int) -> float:
    f = replace(one.factors, metric=LowRankMetric(top(one.factors.U, count)), images=None)
    values = torch.linalg.svdvals(replace(one, factors=f).score("riemannian")).cpu().numpy()
    return numerical_rank(values, len(values) * np.finfo(float).eps)
