"""C1: with metrics of their own the tokens' score is no inner product of narrow features (Theorem 3.2, made exact)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float64
from torch import Tensor

from fbt_core.claims.chart import Chart, Curve, Mark
from fbt_core.claims.evidence import Evidence, Unavailable
from fbt_core.claims.heads import Head
from fbt_core.claims.table import FAILS, HOLDS, Claim, Finding

MOST_TOKENS = 512
"""At most so many tokens for the spectrum, where the predicted rank asks for more than the trace has."""

SPARE = 64
"""Tokens beyond the predicted rank, so that the gap behind it can be seen."""


@dataclass(frozen=True)
class Spectrum:
    """One head's score matrix S over N tokens: singular values, its numerical rank, and the rank that is predicted."""

    values: Float64[np.ndarray, " value"]
    rank: int
    shared: int  # d + 2: what one metric for all tokens would give
    universal: int  # d + rho + 2 m + 2

    @property
    def visible(self) -> bool:
        """Whether there are more tokens than the predicted rank, so that the spectrum could show it."""
        return len(self.values) > self.universal

    def gap(self, index: int) -> float:
        """s_index / s_{index + 1}, counted from 1; infinite where the second is 0."""
        after = self.values[index]
        return float(self.values[index - 1] / after) if after > 0 else float("inf")


def rounding(tokens: int) -> float:
    """Singular values below this share of the largest are rounding: N machine epsilons, as numpy and LAPACK have it."""
    return tokens * float(np.finfo(np.float64).eps)


def numerical_rank(matrix: Tensor) -> int:
    """#{s > max(shape) eps s_1}."""
    values = torch.linalg.svdvals(matrix)
    return int((values > rounding(max(matrix.shape)) * values[0]).sum()) if values.numel() else 0


def metric_span(U: Float64[Tensor, "token dim rank"]) -> tuple[int, int]:
    """(m, rho): the affine dimension of {A_t}, and the dimension of the joint column space of the A_s - A_t."""
    A = U @ U.mT
    moved = A - A[:1]  # exactly 0 where all are equal
    moved = moved - moved.mean(0)
    upper = torch.triu_indices(A.shape[-1], A.shape[-1])
    floor = rounding(len(A)) * float(A.abs().max())
    moved = moved.masked_fill(moved.abs() <= floor, 0.0)
    return numerical_rank(moved[:, upper[0], upper[1]]), numerical_rank(moved.flatten(0, 1))


def universal_rank(head: Head) -> int:
    """d + rho + 2 m + 2, an upper bound of the score's rank for any q and k, and its value for generic ones."""
    m, rho = metric_span(head.factors.U[0])
    return head.factors.q.shape[-1] + rho + 2 * m + 2


def spectrum(head: Head) -> Spectrum:
    """Of the score with the metric, on all pairs: the mask would make any matrix one of full rank."""
    values = torch.linalg.svdvals(head.score(head.bent)).cpu().numpy()
    rank = int((values > rounding(len(values)) * values[0]).sum())
    return Spectrum(values, rank, head.factors.q.shape[-1] + 2, universal_rank(head))


def spectra(evidence: Evidence) -> dict[tuple[int, int], Spectrum]:
    """By (place, head), on as many tokens as the predicted rank asks for, where text and model have them."""
    heads = evidence.metric_heads
    found = {(head.place, head.head): spectrum(head) for head in heads}
    d = heads[0].factors.q.shape[-1]
    wanted = d * d + 3 * d + 2 + SPARE  # the universal rank is never above this less SPARE
    if all(one.visible for one in found.values()) or wanted > MOST_TOKENS:
        return found
    return {(head.place, head.head): spectrum(head) for head in evidence.longer(wanted)}


def check(evidence: Evidence) -> Finding:
    found = spectra(evidence)
    first = next(iter(found.values()))
    tokens = len(first.values)
    if tokens <= first.shared:
        raise Unavailable(f"{tokens} tokens cannot show a rank above d + 2 = {first.shared}: give a longer text")
    excess = {place: one.rank - one.shared for place, one in found.items()}
    above = sum(value > 0 for value in excess.values())
    statistic = min(excess.values())
    ranks = np.array([one.rank for one in found.values()])
    return Finding(
        HOLDS if statistic > 0 else FAILS,
        float(statistic),
        f"Over {tokens} tokens the score matrix has numerical rank {_span(ranks)}, above d + 2 = {first.shared} in "
        f"{above} of {len(found)} heads; {_prediction(found)}.",
        "Metrics that are the same for all tokens of some head give rank d + 2 there, and the claim fails.",
        evidence.grid({place: float(one.rank) for place, one in found.items()}),
        "numerical rank of the score matrix",
        _numbers(found),
        (_chart(found),),
        (f"Rank: singular values above N ε s₁, N = {tokens}, ε = 2.2e-16. All pairs, before the mask.",
         "This says nothing of whether the directions beyond d + 2 are large: see C1b."),
    )  # fmt: skip


def _prediction(found: dict[tuple[int, int], Spectrum]) -> str:
    seen = [one for one in found.values() if one.visible]
    if not seen:
        return "the universal rank is at or above the number of tokens, so it cannot be seen here"
    met = sum(one.rank == one.universal for one in seen)
    gaps = [one.gap(one.universal) for one in seen]
    return (f"the universal rank d + ρ + 2m + 2 = {_span(np.array([one.universal for one in seen]))} is met in {met} "
            f"of {len(seen)} heads where it can be seen, with a gap there of {np.median(gaps):.1e} "
            f"(median)")  # fmt: skip


def _numbers(found: dict[tuple[int, int], Spectrum]) -> tuple[tuple[str, float, str], ...]:
    all_of, seen = list(found.values()), [one for one in found.values() if one.visible]
    pairs = [one.gap(one.universal) for one in seen]
    return (
        ("tokens", float(len(all_of[0].values)), "tokens"),
        ("rank of one metric, d + 2", float(all_of[0].shared), ""),
        ("numerical rank, median", float(np.median([one.rank for one in all_of])), ""),
        ("numerical rank, least", float(min(one.rank for one in all_of)), ""),
        ("universal rank, median", float(np.median([one.universal for one in all_of])), ""),
        ("heads where the universal rank can be seen", float(len(seen)), "heads"),
        ("heads of exactly the universal rank", float(sum(one.rank == one.universal for one in seen)), "heads"),
        ("heads above the universal rank", float(sum(one.rank > one.universal for one in seen)), "heads"),
        ("gap at the universal rank, median", float(np.median(pairs)) if pairs else float("nan"), ""),
        ("s_(d+3) / s₁, median", float(np.median([one.values[one.shared] / one.values[0] for one in all_of])), ""),
    )  # fmt: skip


def _chart(found: dict[tuple[int, int], Spectrum]) -> Chart:
    """The spectra of all heads together, each relative to its largest value."""
    floor = rounding(len(next(iter(found.values())).values))
    shares = np.array([one.values / one.values[0] for one in found.values()])
    shares = np.maximum(shares, np.finfo(np.float64).eps / 100)  # a logarithmic axis has no 0
    index = np.arange(1, shares.shape[1] + 1, dtype=float)
    middle = Curve("median over heads, least to largest", index, np.median(shares, 0), shares.min(0), shares.max(0))
    first = next(iter(found.values()))
    predicted = sorted({one.universal for one in found.values() if one.visible})
    marks = [Mark("x", float(first.shared), f"d + 2 = {first.shared}"), Mark("y", floor, "rounding: N ε")]
    marks += [Mark("x", float(rank), f"universal rank {rank}") for rank in predicted[:: max(1, len(predicted) - 1)]]
    return Chart(
        "Singular values of the score matrix", "index k", "s_k / s₁", (middle,), tuple(marks), log_y=True,
        note=f"{len(found)} heads, {len(index)} tokens, all pairs, no mask",
    )  # fmt: skip


def _span(values: np.ndarray) -> str:
    return f"{values.min()}" if values.min() == values.max() else f"{values.min()} to {values.max()}"


CLAIM = Claim(
    "C1",
    "The score is no inner product of narrow features",
    "With one metric for all tokens the score is an inner product of features of width d + 2, a query's and a key's. "
    "With a metric a token it is not: the matrix of all scores has a larger rank. How large follows from the metrics "
    "alone, the universal rank.",
    r"\operatorname{rank} S > d + 2, \qquad \operatorname{rank} S \le d + \rho + 2m + 2,\quad m = \dim "
    r"\operatorname{aff}\{A_t\},\ \rho = \dim \textstyle\sum_{s,t} \operatorname{col}(A_s - A_t)",
    "Theorem 3.2 of arXiv 2608.01283; docs/mathematics.md, Exact scores and what they cost",
    "numerical rank of the score matrix less d + 2, the least over heads; holds if it is above 0 in every head",
    0.0,
    "dimensions",
    "d + 2 is what any one metric for all tokens reaches, row and column terms counted, and no more",
    "The score cannot be written with features of width O(d). Exactly: it can if, and only if, m is O(d).",
    check,
)
