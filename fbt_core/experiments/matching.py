"""The temperature at which a score's rows are as wide as another's, also where all rows are all but uniform.

``fbt_core.attention.matching`` compares entropies, and those of nearly uniform rows agree in all their digits. Here the
distance from uniform is computed without cancellation and matched by its logarithm. With u_j = L p_j - 1,

    delta_i = ln L - H(p_i) = mean_j [(1 + u_j) ln(1 + u_j) - u_j],      Delta = mean_i (1 - exp(- delta_i)),

so that the mean exp-entropy is L (1 - Delta). For logits c s, d delta_i / d ln c = Var_p(c s) >= 0: Delta rises with c,
and the c that gives a wanted Delta is unique. Near uniform rows Delta goes as c^2: Newton's steps in logarithms are
then exact at once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float64
from torch import Tensor

Rows = Float64[Tensor, "row token"]

TOLERANCE = 1e-9
"""Of ln Delta: one part in 10^9 of the distance from uniform."""

STEPS = 60
"""At most. Newton needs some five; where it leaves the bracket, halving it takes over."""

BRACKET = 40.0
"""ln c is looked for within this of 0: 17 powers of ten either way."""

SMALL = 1e-4
"""|u| below which (1 + u) ln(1 + u) - u is taken from its series, whose fifth term is then below 1e-12 of the first."""


def deficits(logits: Rows) -> tuple[Float64[Tensor, " row"], Float64[Tensor, " row"]]:
    """delta_i = ln L - H(softmax of row i) in nats, in [0, ln L], and the variance of the logits under that softmax.

    Relative precision about 1e-16 over the spread of a row's logits, however near to uniform the row is.
    """
    z = logits - logits.amax(-1, keepdim=True)
    e = torch.expm1(z)
    excess = e.mean(-1, keepdim=True)  # the mean of exp(z), less 1
    u = (e - excess) / (1 + excess)
    log = z - torch.log1p(excess)  # ln(1 + u)
    series = u.square() * (0.5 + u * (-1 / 6 + u / 12))
    delta = torch.where(u.abs() < SMALL, series, (1 + u) * log - u).mean(-1)
    mean = ((1 + u) * log).mean(-1, keepdim=True)  # of ln(1 + u) under p, whose weights are (1 + u) / L
    return delta.clamp_min(0), ((1 + u) * (log - mean).square()).mean(-1)


def narrowness(logits: Rows) -> float:
    """Delta = 1 - mean exp-entropy / L, in [0, 1): 0 for uniform rows."""
    return float(-torch.expm1(-deficits(logits)[0]).mean())


@dataclass(frozen=True)
class Match:
    """What came of a match."""

    multiplier: float  # c of the logits c s; NaN where there is none
    gap: float  # ln Delta less the wanted ln Delta; NaN where there is none


NO_MATCH = Match(math.nan, math.nan)


def match(logits: Rows, wanted: float, start: float = 1.0) -> Match:
    """The c > 0 for which the rows softmax(c logits) have narrowness ``wanted``; ``start`` is where to begin.

    No match where ``wanted`` is not in (0, 1), where rows are constant, or where ties keep rows wide. O(steps L^2).
    """
    if not 0 < wanted < 1:
        return NO_MATCH
    low, high, x, goal = -BRACKET, BRACKET, math.log(start), math.log(wanted)
    for _ in range(STEPS):
        value, slope = _narrowness_and_slope(math.exp(x) * logits)
        if value == 0 and x > BRACKET - 1:
            return NO_MATCH
        gap = math.log(value) - goal if value > 0 else -math.inf
        if abs(gap) <= TOLERANCE:
            return Match(math.exp(x), gap)
        low, high = (low, x) if gap > 0 else (x, high)
        step = x - gap * value / slope if slope > 0 and math.isfinite(gap) else math.inf
        x = step if low < step < high else (low + high) / 2
    return NO_MATCH


def _narrowness_and_slope(logits: Rows) -> tuple[float, float]:
    """Delta, and its derivative by ln c at c = 1."""
    delta, variance = deficits(logits)
    return float(-torch.expm1(-delta).mean()), float((torch.exp(-delta) * variance).mean())
