"""Entropy-matched temperature: the control without which a sharper attention looks like a geometry.

A metric that merely sharpens or flattens attention is the commonest illusion. So one compares with a score whose
temperature was changed until its rows are, in the mean, exactly as sharp. With logits c s + mask the mean row entropy
falls in c > 0: dH/dc = - c mean Var_p(s) <= 0, p the row's softmax. So the c that gives a wanted entropy is unique, and
is found by Newton steps in log c within a shrinking bracket. (Where a position bias b is added to the scores the
derivative is - mean Cov_p(s, c s + b), which may change its sign: what is found then matches, but need not be unique.)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import torch
from jaxtyping import Float64
from torch import Tensor

from fbt_core.attention.scores import SCORES, Factors, attention, bias
from fbt_core.geometry.metric import LowRankMetric

LEAST, MOST = 1e-6, 1e6
"""The multipliers between which a match is looked for."""

TOLERANCE, STEPS = 1e-10, 100
"""In nats of the mean row entropy, and steps at most; bisection alone would need 60."""

ROWS = 256
"""Rows of attention in memory at once."""


def mean_entropy(f: Factors, score: str) -> Float64[Tensor, " head"]:
    """The mean entropy of a score's rows, each head, in nats; in float64, O(L^2 d) time.

    Rows without a key are left out. Where a sink takes a part of a row, the entropy is that of what is left, as it is.
    """
    found = []
    for head in range(len(f.q)):
        one = _in_float64(f.select(head))
        rows = torch.cat([torch.special.entr(attention(one, score, some)).sum(-1)[0] for some in _tiles(f)])
        found.append(rows[rows.isfinite()].mean())
    return torch.stack(found)


def matched(f: Factors, score: str, target: str) -> tuple[Factors, Float64[Tensor, " head"]]:
    """The factors with each head's temperature changed so that ``score`` has the mean row entropy that ``target`` has
    on ``f``; and the multiplier of the logits of ``score``, one a head.

    The multiplier is on ``scale`` for the dot product, and on 1 / tau for the others, Omega included. It is NaN, and
    the head as it was, where none from ``LEAST`` to ``MOST`` reaches the target: above the entropy of uniform rows, or
    below what ties leave. One head at a time, O(L^2) memory; some ten evaluations of L^2 exponentials.

    Raises ``KeyError`` for an unknown score, and ``ValueError`` for a blended score, which has no one temperature, and
    for a dot product with a soft cap or sinks, which are no temperature's doing.
    """
    return matched_to(f, score, mean_entropy(f, target))


def matched_to(f: Factors, score: str, wanted: Float64[Tensor, " head"]) -> tuple[Factors, Float64[Tensor, " head"]]:
    """``matched`` with the wanted mean row entropies given, nats, one a head: those of another model's rows."""
    if score == "blended":
        raise ValueError("got the blended score, expected one that has a single temperature")
    if score == "euclidean" and (f.softcap is not None or f.sinks is not None):
        raise ValueError("got a dot product with a soft cap or sinks, expected a plain softmax to match")
    found = []
    for head in range(len(f.q)):
        one = _in_float64(f.select(head))
        everything = slice(0, f.q.shape[-2]), slice(0, f.k.shape[-2])
        logits, extra = SCORES[score].function(one, *everything)[0], bias(one, *everything)
        extra = torch.zeros_like(logits) if extra is None else extra.reshape(-1, *extra.shape[-2:])[0]
        seen = (extra > float("-inf")).any(-1)
        found.append(_solve(_Entropy(logits[seen], extra[seen]), float(wanted[head])))
    multiplier = torch.tensor(found, dtype=torch.float64, device=f.q.device)
    return tempered(f, score, multiplier.nan_to_num(1.0)), multiplier


def tempered(f: Factors, score: str, multiplier: Float64[Tensor, " head"]) -> Factors:
    """The factors whose logits of ``score`` are multiplied, each head by its own number > 0."""
    if score == "euclidean":
        return replace(f, scale=(f.dot_scale[:, 0, 0] * multiplier).to(f.tau))
    c = multiplier.to(f.omega).unsqueeze(-1)
    return replace(f, tau=(f.tau / multiplier).to(f.tau), omega=f.omega * c, images=None)


class _Entropy:
    """Mean row entropy of softmax(c s + extra), and its derivative by log c, as functions of log c."""

    def __init__(self, logits: Tensor, extra: Tensor) -> None:
        self.logits, self.extra = logits, extra

    def __call__(self, log_c: float) -> tuple[float, float]:
        entropy = slope = 0.0
        for some in _tiles_of(len(self.logits)):
            s = math.exp(log_c) * self.logits[some]
            z = s + self.extra[some]
            p, total = z.softmax(-1), z.logsumexp(-1)
            z = z.masked_fill(p == 0, 0.0)
            mean = (p * z).sum(-1)
            entropy += float((total - mean).sum())
            slope -= float((p * s * (z - mean[:, None])).sum())
        return entropy / len(self.logits), slope / len(self.logits)


def _solve(entropy: Callable[[float], tuple[float, float]], wanted: float) -> float:
    """The c with that mean entropy, or NaN."""
    low, high, x = math.log(LEAST), math.log(MOST), 0.0
    if not (entropy(low)[0] >= wanted - TOLERANCE and entropy(high)[0] <= wanted + TOLERANCE):
        return math.nan
    for _ in range(STEPS):
        value, slope = entropy(x)
        if abs(value - wanted) <= TOLERANCE:
            break
        low, high = (x, high) if value > wanted else (low, x)
        step = x - (value - wanted) / slope if slope < 0 else math.inf
        x = step if low < step < high else (low + high) / 2
    return math.exp(x)


def _in_float64(f: Factors) -> Factors:
    def double(x: Tensor | None) -> Tensor | None:
        return None if x is None else x.double()

    parts = {name: getattr(f, name).double() for name in ("q", "k", "v", "tau", "omega")}
    parts |= {name: double(getattr(f, name)) for name in ("slopes", "scale", "mask", "sinks")}
    return replace(f, **parts, metric=LowRankMetric(f.U.double()), images=None)


def _tiles(f: Factors) -> list[slice]:
    return _tiles_of(f.q.shape[-2])


def _tiles_of(length: int) -> list[slice]:
    return [slice(start, min(start + ROWS, length)) for start in range(0, length, ROWS)]
