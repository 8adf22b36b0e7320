"""C1b: whether the rank beyond d + 2 matters to the attention, or could be left out unseen."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float64
from torch import Tensor

from fbt_core.attention.scores import bias
from fbt_core.claims.chart import Chart, Curve, Mark
from fbt_core.claims.evidence import Evidence, Unavailable
from fbt_core.claims.heads import Head, evenly
from fbt_core.claims.table import FAILS, HOLDS, Claim, Finding
from fbt_core.measures.divergence import total_variation

Matrix = Float64[Tensor, "row column"]

MOST_HEADS = 64
"""Of models with more: evenly spaced ones."""

HALF = 0.5

ENOUGH = 0.01
"""Mean total variation below which two maps count as the same: a hundredth of the attention moves to other keys."""


STEPS = 80
"""Of L-BFGS, when a score of rank d + 2 is fitted to a head's attention."""


@dataclass(frozen=True)
class Needed:
    """What ranks give one head's attention."""

    rank: int  # the smallest k whose truncation has mean total variation below ENOUGH
    shared: int  # d + 2
    cut: float  # mean total variation of the truncation at rank d + 2
    fitted: float  # the same of a score of rank d + 2 that was fitted to the attention; NaN where none was needed

    @property
    def best(self) -> float:
        """The smaller of the two."""
        return self.cut if np.isnan(self.fitted) else min(self.cut, self.fitted)

    @property
    def above(self) -> bool:
        """Whether rank d + 2 is not enough, truncated or fitted."""
        return self.rank > self.shared and self.fitted >= ENOUGH


def row_free(score: Float64[Tensor, "row column"]) -> Float64[Tensor, "row column"]:
    """Less each row's mean, which the softmax does not see and a factorisation need not spend a rank on."""
    return score - score.mean(-1, keepdim=True)


def rank_needed(head: Head) -> Needed:
    """Ranks one after another, up to the first that is enough (and to d + 2): O(L^2) each after one SVD."""
    f, score = head.factors, row_free(head.score(head.bent))
    whole = slice(0, len(score))
    added = bias(f, whole, whole)
    added = torch.zeros_like(score) if added is None else added.reshape(-1, *score.shape)[0]
    wanted = (score + added).softmax(-1)
    left, values, right = torch.linalg.svd(score)
    built, shared = added.clone(), min(f.q.shape[-1] + 2, len(values))
    needed, cut = 0, float("nan")
    for k in range(1, len(values) + 1):
        built = built + values[k - 1] * left[:, k - 1 : k] * right[k - 1]
        moved = _moved(built, wanted)
        cut = moved if k == shared else cut
        needed = k if not needed and moved < ENOUGH else needed
        if needed and k >= shared:
            break
    root = values[:shared].sqrt()
    start = (left[:, :shared] * root, right[:shared].mT * root)
    fitted = fit(*start, added, wanted) if needed > shared else float("nan")
    return Needed(needed, shared, cut, fitted)


def fit(
    left: Float64[Tensor, "row rank"], right: Float64[Tensor, "column rank"], added: Matrix, wanted: Matrix
) -> float:
    """Mean total variation from ``wanted`` of softmax(left right^T + added), after descent on the cross-entropy.

    The truncation is best over all pairs alike; this fit knows the mask and which pairs carry attention.
    """
    parts = [side.clone(memory_format=torch.contiguous_format).requires_grad_() for side in (left, right)]
    descent = torch.optim.LBFGS(parts, max_iter=STEPS, line_search_fn="strong_wolfe")
    seen = added > -torch.inf

    def loss() -> Tensor:
        descent.zero_grad()
        logs = (parts[0] @ parts[1].mT + added).log_softmax(-1).masked_fill(~seen, 0.0)
        found = -(wanted * logs).sum()
        found.backward()
        return found

    with torch.enable_grad():
        descent.step(loss)
    with torch.no_grad():
        return _moved(parts[0] @ parts[1].mT + added, wanted)


def _moved(logits: Matrix, wanted: Matrix) -> float:
    return float(total_variation(logits.softmax(-1), wanted).mean())


def check(evidence: Evidence) -> Finding:
    heads = evidence.metric_heads
    tokens, shared = evidence.trace.length, heads[0].factors.q.shape[-1] + 2
    if 2 * tokens * shared >= (pairs := int(heads[0].seen.sum())):
        raise Unavailable(f"a score of rank d + 2 = {shared} has {2 * tokens * shared:,} numbers for {pairs:,} pairs "
                          f"of {tokens} tokens, so it fits anything: ask for more tokens")  # fmt: skip
    found = {(head.place, head.head): rank_needed(head) for head in evenly(heads, MOST_HEADS)}
    parts = list(found.values())
    needed, best = np.array([one.rank for one in parts]), np.array([one.best for one in parts])
    above = sum(one.above for one in parts)
    share = above / len(parts)
    left_out = (f"{len(parts)} of {len(heads)} heads, evenly spaced.",) if len(parts) < len(heads) else ()
    return Finding(
        HOLDS if share > HALF else FAILS,
        share,
        f"Rank d + 2 = {shared} is enough for the attention, to {ENOUGH:.0%}, in all but {above} of {len(parts)} "
        f"heads; it moves {np.median(best):.2%} of the attention (median), and a truncated score needs rank "
        f"{np.median(needed):g} ({needed.min()} to {needed.max()}).",
        f"{'At most' if share > HALF else 'More than'} half of the heads in need of more than rank {shared}; a smaller "
        "tolerance needs a larger rank.",
        evidence.grid({place: float(one.rank) for place, one in found.items()}),
        "smallest rank of a truncated score that gives the same attention",
        _numbers(parts, shared),
        (_ranks(needed, shared, tokens), _moves(parts, shared)),
        (*NOTES, *left_out),
    )  # fmt: skip


NOTES = (
    "Truncation: the SVD of the score less its row means, over all pairs. Where it needs more than d + 2, a score of "
    "rank d + 2 is fitted to the attention itself, under the mask, and the head counts only if that fails too.",
    "The features are found for these very tokens; they need not be functions that serve others.",
)  # fmt: skip


def _numbers(parts: list[Needed], shared: int) -> tuple[tuple[str, float, str], ...]:
    needed, cut, best = (np.array([getattr(one, name) for one in parts]) for name in ("rank", "cut", "best"))
    return (
        ("heads that need more than d + 2", float(sum(one.above for one in parts)), "heads"),
        ("heads whose truncation needs more than d + 2", float((needed > shared).sum()), "heads"),
        ("rank needed by truncation, median", float(np.median(needed)), ""),
        ("rank needed by truncation, most", float(needed.max()), ""),
        ("d + 2", float(shared), ""),
        ("total variation of the truncation at d + 2, median", float(np.median(cut)), ""),
        ("total variation of the better of truncation and fit at d + 2, median", float(np.median(best)), ""),
        ("total variation of the better of truncation and fit at d + 2, most", float(best.max()), ""),
    )


def _ranks(needed: np.ndarray, shared: int, tokens: int) -> Chart:
    ranks = np.arange(1, max(needed.max(), shared) + 2, dtype=float)
    share = np.array([(needed <= k).mean() for k in ranks])
    return Chart(
        "How many heads a truncated score of rank k is enough for", "rank k", "share of heads",
        (Curve("heads", ranks, share),),
        (Mark("x", float(shared), f"d + 2 = {shared}"), Mark("y", HALF, "half of them")),
        note=f"enough: mean total variation below {ENOUGH}; {tokens} tokens, {len(needed)} heads",
    )  # fmt: skip


def _moves(parts: list[Needed], shared: int) -> Chart:
    place, floor = np.arange(len(parts), dtype=float), np.finfo(np.float64).eps
    curves = tuple(
        Curve(name, place, np.maximum([getattr(one, key) for one in parts], floor), style="points")
        for name, key in (("truncated", "cut"), ("better of truncated and fitted", "best"))
    )
    return Chart(
        f"Attention that a score of rank {shared} "
        f"moves", "head, layers one after another", "mean total variation", curves,
        (Mark("y", ENOUGH, "enough"),), log_y=True, note="fitted where the truncation is not enough",
    )  # fmt: skip


CLAIM = Claim(
    "C1b",
    "The rank beyond d + 2 matters to the attention",
    "A larger rank need not matter: the directions beyond d + 2 may be too small to move any attention. Here the score "
    "is cut to rank k, and the smallest k is sought that leaves the attention as it is.",
    r"k^* = \min\Big\{k : \tfrac1L \sum_i \tfrac12 \big\lVert \mathrm{softmax}(S_i) - \mathrm{softmax}(S^{(k)}_i)"
    r"\big\rVert_1 < 0.01 \Big\} > d + 2",
    "our own question to Theorem 3.2 of arXiv 2608.01283",
    "the share of heads for which rank d + 2 is not enough, neither by truncation nor by a fit to the attention; holds "
    "if it is above a half",
    HALF,
    "of the heads",
    "below it, an inner product of features of one metric's width gives the same attention in most heads",
    "Nothing: the theorem is about exact rank.",
    check,
)
