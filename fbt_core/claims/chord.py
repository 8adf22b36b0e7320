"""C13: whether the chord that attention measures is as long as the true geodesic."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float64
from torch import Tensor

from fbt_core.attention.scores import Factors
from fbt_core.attention.true_distance import distance_ratio, true_distance_attention
from fbt_core.claims.chart import Chart, Curve, Mark
from fbt_core.claims.evidence import Evidence, Unavailable
from fbt_core.claims.fields import READING_NOTE, fields
from fbt_core.claims.table import FAILS, HOLDS, Claim, Finding
from fbt_core.geometry.boundary import connect_all
from fbt_core.geometry.curves import coordinates
from fbt_core.geometry.distances import chords, every_pair
from fbt_core.geometry.function import MetricFunction
from fbt_core.geometry.metric import LowRankMetric
from fbt_core.measures.tokens import to_numpy

THRESHOLD = 0.05
SHARE = 90
"""Percent of the pairs that must be within the threshold."""

TOKENS = 6
"""Of each head, evenly spread over the text: 15 pairs."""

ROUGH = 1e-4
"""Relative, of a length: far below the threshold. A tighter one costs minutes where a field is rough."""


@dataclass(frozen=True)
class Lengths:
    """One head's pairs of tokens; ``true`` is NaN where no geodesic was found."""

    place: int
    head: int
    euclid: Float64[np.ndarray, " pair"]
    chord: Float64[np.ndarray, " pair"]
    true: Float64[np.ndarray, " pair"]
    variation: float  # mean total variation of attention among the tokens when the true length replaces the chord

    @property
    def error(self) -> Float64[np.ndarray, " pair"]:
        """|chord / true - 1|; NaN for two tokens at the same place."""
        return off(self.chord, self.true)


def off(length: Float64[np.ndarray, " pair"], true: Float64[np.ndarray, " pair"]) -> Float64[np.ndarray, " pair"]:
    """|length / true - 1|; NaN where the true length is 0."""
    return np.abs(length / np.where(true > 0, true, np.nan) - 1)


def measured(g: MetricFunction, points: Float64[Tensor, "token width"]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Euclid's, the chord's and the geodesic's length of every pair i < j of the points."""
    pairs = torch.tensor(every_pair(len(points)))
    x, y = points[pairs[:, 0]], points[pairs[:, 1]]
    found = connect_all(g, x, y, ROUGH, samples=2)
    true = np.array([one.length if one.converged else np.nan for one in found])
    return to_numpy(coordinates(g, y - x).norm(dim=-1)), to_numpy(chords(g, x, y)), true


def compared(evidence: Evidence) -> list[Lengths]:
    """Every head that is looked at."""
    found = []
    for place, head, g, points, tokens in fields(evidence, TOKENS):
        if len(tokens) < 2:
            raise Unavailable(f"a distance needs at least 2 tokens, the text has {len(tokens)}")
        euclid, chord, true = measured(g, points)
        known = np.where(np.isfinite(true) & (chord > 0), true, chord)
        f = _among(evidence.trace.layers[place].given.select(head), tokens)
        found.append(Lengths(place, head, euclid, chord, true, variation(f, known, chord)))
    return found


def variation(f: Factors, true: Float64[np.ndarray, " pair"], chord: Float64[np.ndarray, " pair"]) -> float:
    """Mean over rows of the total variation of attention when each squared chord is multiplied by (true / chord)^2."""
    count = f.q.shape[-2]
    i, j = torch.tensor(every_pair(count)).T
    lengths = torch.zeros(2, count, count, dtype=torch.float64)  # the true one and the chord, both 0 on the diagonal
    for matrix, values in zip(lengths, (true, chord), strict=True):
        matrix[i, j] = matrix[j, i] = torch.from_numpy(values)
    ratio = distance_ratio(*lengths).to(f.q.device)
    before, after = (true_distance_attention(f, one) for one in (torch.ones_like(ratio), ratio))
    return float((before - after).abs().sum(-1).mean() / 2)


def _among(f: Factors, tokens: list[int]) -> Factors:
    """The factors of some tokens only; what depends on how far apart they are is left out."""
    parts = {name: getattr(f, name)[..., tokens, :] for name in ("q", "k", "v")}
    metric = LowRankMetric(f.U[..., tokens, :, :])
    return replace(f, **parts, metric=metric, omega=f.omega[..., tokens], slopes=None, mask=None,
                   images=None)  # fmt: skip


def close(evidence: Evidence) -> Finding:
    """The 90th percentile of the chord's relative error, all pairs of all heads together."""
    heads = compared(evidence)
    error = np.concatenate([one.error for one in heads])
    known = np.isfinite(error)
    if not known.any():
        raise Unavailable("no geodesic between the tokens looked at was found")
    chord, true, euclid = (
        np.concatenate([getattr(one, name) for one in heads]) for name in ("chord", "true", "euclid")
    )
    value = float(np.percentile(error[known], SHARE))
    flat = float(np.percentile(off(euclid, true)[known], SHARE))
    moved = float(np.mean([one.variation for one in heads]))
    grid = {(one.place, one.head): _percentile(one.error) for one in heads}
    return Finding(
        HOLDS if value <= THRESHOLD else FAILS,
        value,
        f"{SHARE} % of {known.sum()} pairs have a chord within {value:.3%} of their true length (median "
        f"{np.median(error[known]):.3%}); Euclid's is within {flat:.3%}.",
        "A metric that changes more along the way from token to token, so that the mean of its two ends says less."
        if value <= THRESHOLD
        else "A metric that changes less along the way from token to token.",
        grid=evidence.grid(grid),
        grid_title=f"{SHARE}th percentile of |chord / true − 1|",
        numbers=(
            (f"{SHARE}th percentile of |chord / true − 1|", value, ""),
            ("median of |chord / true − 1|", float(np.median(error[known])), ""),
            ("largest |chord / true − 1|", float(error[known].max()), ""),
            (f"{SHARE}th percentile of |Euclid / true − 1|", flat, ""),
            ("total variation of attention, true length for chord", moved, ""),
            ("pairs without a geodesic", float((~known).sum()), "pairs"),
        ),
        charts=(_pairs(true, chord, euclid), _sorted(error[known], off(euclid, true)[known])),
        notes=(
            f"{len(heads[0].true)} pairs of each of {len(heads)} heads, between the residuals of tokens evenly spread "
            "over the text. Attention's own chord lies between a query and a key of them.",
            READING_NOTE,
            "A geodesic is the shortest curve found by descent from the straight one: at most as long as that one.",
        ),
    )  # fmt: skip


def _percentile(error: np.ndarray) -> float:
    known = error[np.isfinite(error)]
    return float(np.percentile(known, SHARE)) if len(known) else float("nan")


def _pairs(true: np.ndarray, chord: np.ndarray, euclid: np.ndarray) -> Chart:
    span = np.array([np.nanmin(true), np.nanmax(true)])
    return Chart("Chord and true length", "true geodesic length", "length by the other measure",
                 (Curve("chord", true, chord, style="points"), Curve("Euclid", true, euclid, style="points"),
                  Curve("equal", span, span)),
                 note="a point a pair of tokens; units of the residual stream")  # fmt: skip


def _sorted(chord: np.ndarray, euclid: np.ndarray) -> Chart:
    share = np.linspace(0, 100, len(chord))
    curves = (Curve("chord", share, 100 * np.sort(chord)), Curve("Euclid", share, 100 * np.sort(euclid)))
    marks = (Mark("y", 100 * THRESHOLD, "threshold"), Mark("x", float(SHARE), f"{SHARE} % of the pairs"))
    return Chart("How far off the lengths are", "pairs with at most this error (%)", "error of the length (%)", curves,
                 marks)  # fmt: skip


CLAIM = Claim(
    id="C13",
    title="The chord stands for the geodesic distance",
    statement="Attention scores a pair by the chord under the mean of its two metrics; the paper calls it geodesic. It "
    "is a fair stand-in where the two lengths hardly differ.",
    equation=r"\sqrt{\delta^\top \tfrac12 (g_x + g_y)\, \delta} \ \overset{?}{\approx}\ d_g(x, y) = "
    r"\inf_{c: x \to y} \int_0^1 \sqrt{\dot c^\top g_{c(t)}\, \dot c}\; dt",
    source="the paper, Eqs. 6, 15, 16; docs/mathematics.md, item 4 and Geodesics",
    statistic="The 90th percentile of |chord / true - 1| over pairs of tokens of all heads. Holds where it is at most "
    "0.05.",
    threshold=THRESHOLD,
    unit="",
    reason="The score holds the square: 5 % of a length are 10 % of a logit, about the least that is seen in a row of "
    "attention whose logits span a few nats.",
    says_paper="Calls the attention geodesic; its score is a chord.",
    function=close,
)
