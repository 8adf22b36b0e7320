"""C4: whether anything happens to the rank of attention where Ū² passes τ / L."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float64

from fbt_core.attention.scores import Factors, attention
from fbt_core.claims.chart import Chart, Curve, Mark
from fbt_core.claims.evidence import Evidence, Unavailable
from fbt_core.claims.heads import Head, evenly
from fbt_core.claims.table import FAILS, HOLDS, Claim, Finding
from fbt_core.geometry.metric import LowRankMetric
from fbt_core.measures.rank import effective_rank, spectrum

STRENGTHS = 10.0 ** np.arange(-1, 4.5, 0.5)
"""Ū² in units of τ / L: the paper's threshold is at 1."""

MOST_HEADS = 32
"""Of models with more: evenly spaced ones."""

VISIBLE = 0.1
"""The relative change of effective rank whose strength is compared between two lengths."""

LINEAR, ALLOWED = 1.0, 0.1
"""Decades of change a decade of strength: what any smooth function does at first, and what is allowed above it."""


DOUBLE = 2.0
"""Halfway, on logarithms, between no dependence on L and a threshold tau / L, at a quarter of the tokens."""


@dataclass(frozen=True)
class Growth:
    """One head: relative change of effective rank at ``STRENGTHS``, at L tokens and at the first quarter of them."""

    change: Float64[np.ndarray, " strength"]  # signed, relative to g = I
    quarter: Float64[np.ndarray, " strength"]  # at the same Ū², not the same multiple of τ / L
    trained: float  # the trained Ū², in units of τ / L
    reach: float  # R^2 / L: tau / R^2 in units of τ / L is its inverse

    def slope(self, low: float, high: float) -> float:
        """Decades of change a decade of strength between two of ``STRENGTHS``; NaN where nothing changes."""
        first, last = (abs(float(self.change[np.argmin(np.abs(STRENGTHS - x))])) for x in (low, high))
        return math.log10(last / first) / math.log10(high / low) if first > 1e-12 and last > 1e-12 else float("nan")

    @property
    def shift(self) -> float:
        """The strength that a visible change takes at L / 4 tokens over the one at L: 4 for τ / L, 1 if L-free."""
        return crossing(self.quarter) / crossing(self.change)


def crossing(change: Float64[np.ndarray, " strength"]) -> float:
    """The first strength at which |change| is ``VISIBLE``, between grid points on logarithms; NaN outside of them."""
    size = np.abs(change)
    above = np.flatnonzero(size >= VISIBLE)
    if not len(above) or above[0] == 0 or size[above[0] - 1] <= 0:
        return float("nan")
    last = above[0]
    low, high = np.log(size[last - 1]), np.log(size[last])
    part = (math.log(VISIBLE) - low) / (high - low)
    return float(np.exp(np.log(STRENGTHS[last - 1]) + part * np.log(STRENGTHS[last] / STRENGTHS[last - 1])))


def growth(head: Head) -> Growth:
    """The head's q, k and τ stay; its U is multiplied by one number. Without Ω, which would grow along."""
    f = replace(head.factors, omega=torch.zeros_like(head.factors.omega))
    length, top = f.q.shape[-2], float(torch.linalg.matrix_norm(f.U, ord=2).max())
    unit = float(f.tau[0]) / length
    reach = float(torch.cdist(f.q[0], f.k[0]).masked_fill(~head.seen, 0.0).max()) ** 2
    whole, quarter = (_changes(part, top, unit) for part in (f, first_tokens(f, max(2, length // 4))))
    return Growth(whole, quarter, top**2 / unit, reach / length)


def first_tokens(f: Factors, count: int) -> Factors:
    """The factors of the first tokens."""
    some = slice(0, count)
    parts = {name: getattr(f, name)[..., some, :] for name in ("q", "k", "v")}
    mask = None if f.mask is None else f.mask[..., some, some]
    return replace(f, **parts, metric=LowRankMetric(f.U[..., some, :, :]), omega=f.omega[..., some], mask=mask,
                   images=None)  # fmt: skip


def _changes(f: Factors, top: float, unit: float) -> Float64[np.ndarray, " strength"]:
    def rank(scale: float) -> float:
        bent = replace(f, metric=LowRankMetric(f.U * scale), images=None)
        return effective_rank(spectrum(attention(bent, "riemannian")[0].cpu().numpy()))

    flat = rank(0.0)
    return np.array([rank(math.sqrt(x * unit) / top) / flat - 1 for x in STRENGTHS])


def check(evidence: Evidence) -> Finding:
    heads = tuple(head for head in evidence.metric_heads if bool(head.factors.U.any()))
    if not heads or evidence.trace.length < 16:
        raise Unavailable("every metric is the identity, or there are fewer than 16 tokens: nothing can be scaled")
    found = {(head.place, head.head): growth(head) for head in evenly(heads, MOST_HEADS)}
    slopes = {place: one.slope(1.0, 10.0) for place, one in found.items()}
    if not np.isfinite(list(slopes.values())).any():
        raise Unavailable("the effective rank of no head changes with the metric")
    parts = list(found.values())
    statistic, shift = _median(slopes.values()), _median(one.shift for one in parts)
    moved = (
        f"a change of {VISIBLE:.0%} takes {shift:.2g} times the strength" if math.isfinite(shift)
        else f"no change of {VISIBLE:.0%} is passed at both lengths"
    )  # fmt: skip
    listed = ", ".join(f"{value:.2g} at {x:g}" for x, value in _changes_at(parts).items())
    left_out = (f"{len(found)} of {len(heads)} heads, evenly spaced.",) if len(found) < len(heads) else ()
    return Finding(
        HOLDS if statistic > LINEAR + ALLOWED and shift > DOUBLE else FAILS,
        statistic,
        f"Relative change of the effective rank (median over heads) at multiples of τ/L: {listed}; from 1 to 10 it "
        f"grows by {statistic:.2f} decades, linear growth being 1, and at a quarter of the tokens {moved}, "
        "where a threshold τ/L predicts 4 times the strength.",
        f"Growth above {LINEAR + ALLOWED:g} decades from 1 to 10, together with a strength that more than doubles at a "
        "quarter of the tokens.",
        evidence.grid(slopes),
        "decades of change from 1 to 10 times τ/L",
        _numbers(parts),
        (_chart(parts, evidence.trace.length),),
        ("q, k and τ stay as they are, U is multiplied by one number, Ω is left out of both: a what-if.",
         "More than linear growth is needed for a threshold, but does not prove one.", *left_out),
    )  # fmt: skip


def _changes_at(parts: list[Growth]) -> dict[float, float]:
    """Median over heads of |relative change| at the four strengths that are told."""
    changes = np.median(np.abs([one.change for one in parts]), 0)
    return {x: float(changes[np.argmin(np.abs(STRENGTHS - x))]) for x in (0.1, 1.0, 10.0, 100.0)}


def _numbers(parts: list[Growth]) -> tuple[tuple[str, float, str], ...]:
    rising = sum(one.change[np.argmin(np.abs(STRENGTHS - 1))] > 0 for one in parts)
    return (
        *((f"relative change at {x:g} τ/L, median", value, "") for x, value in _changes_at(parts).items()),
        *((f"decades of change from {x:g} to {10 * x:g}, median", _median(one.slope(x, 10 * x) for one in parts), "")
          for x in (0.1, 1.0, 10.0)),
        ("strength of a 10 % change, median", _median(crossing(one.change) for one in parts), "τ/L"),
        ("the same at a quarter of the tokens, over it", _median(one.shift for one in parts), ""),
        ("τ/R², median", _median(1 / one.reach for one in parts), "τ/L"),
        ("trained Ū², median", _median(one.trained for one in parts), "τ/L"),
        ("heads whose rank rises at the threshold", float(rising), "heads"),
    )  # fmt: skip


def _median(values: Iterable[float]) -> float:
    """Of what is a number; NaN where nothing is."""
    kept = [value for value in values if math.isfinite(value)]
    return float(np.median(kept)) if kept else float("nan")


def _chart(parts: list[Growth], tokens: int) -> Chart:
    changes = np.maximum(np.abs([one.change for one in parts]), 1e-12)
    middle, low, high = np.median(changes, 0), *np.quantile(changes, (0.25, 0.75), axis=0)
    line = middle[2] * STRENGTHS
    marks = [Mark("x", 1.0, "τ/L"), Mark("x", _median(1 / one.reach for one in parts), "τ/R² (median)")]
    marks += [Mark("x", _median(one.trained for one in parts), "as trained (median)")]
    curves = (Curve("median over heads, middle half", STRENGTHS, middle, low, high), Curve("linear", STRENGTHS, line))
    return Chart(
        "Change of the effective rank of attention", "Ū², in units of τ/L", "relative change, absolute value", curves,
        tuple(mark for mark in marks if math.isfinite(mark.value)), True, True,
        f"{len(parts)} heads, L = {tokens}; what-if: U is multiplied by one number, Ω left out",
    )  # fmt: skip


CLAIM = Claim(
    "C4",
    "A threshold at Ū² = τ / L",
    "Metrics stronger than τ / L raise the rank of attention, weaker ones do not: something happens there.",
    r"\bar U^2 = \max_t \lVert U_t \rVert_2^2 \gtrless \tau / L, \qquad "
    r"\frac{\operatorname{erank} A_R - \operatorname{erank} A_E}{\operatorname{erank} A_E}(x),\quad x = \bar U^2 "
    r"L/\tau",
    "arXiv 2608.01283",
    "decades by which the relative change of effective rank grows from 1 to 10 times τ/L, the median over heads; holds "
    "if it is above 1.1 and a change of 10 % takes more than twice the strength at a quarter of the tokens",
    LINEAR + ALLOWED,
    "decades",
    "any smooth function grows linearly at first, by one decade a decade; a threshold is more than that, and moves "
    "with L",
    "Above the threshold the rank of attention is larger than that of dot-product attention.",
    check,
)
