"""One stack, layer by layer: what each layer attended with, and what that made of the tokens."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Float64
from torch import Tensor

from fbt_core.attention.matching import tempered
from fbt_core.attention.scores import SCORES, Factors, attention
from fbt_core.experiments.matching import NO_MATCH, deficits, match, narrowness
from fbt_core.experiments.stack import PureLayer, PureStack, Tokens, spectral_norms, squared_radius
from fbt_core.experiments.theorem import PairScore, bound, diameter, sampled_norm
from fbt_core.measures.attention import dobrushin, exp_entropy
from fbt_core.measures.rank import effective_rank, participation_ratio, spectrum
from fbt_core.measures.spread import dong_residual, mu
from fbt_core.measures.tokens import centred, to_numpy
from fbt_core.model.initialise import named_generator

NAN = math.nan

FLOOR = 1e-13
"""Dong residuals below this are rounding in float64: ``below_floor``. Collapsed stacks are left at some 1e-16."""


@dataclass(frozen=True)
class Step:
    """One layer of one arm, done."""

    layer: PureLayer
    x: Tokens  # what came in
    out: Tokens
    factors: Factors
    logits: Float[Tensor, "batch head token token"]
    A: Float[Tensor, "batch head token token"]
    multiplier: float  # of the logits, where they were matched, else 1
    gap: float  # of the match; NaN where there was none

    @property
    def narrowness(self) -> float:
        """1 - mean exp-entropy / L over all rows, without cancellation; NaN for tokens that differ by rounding only."""
        return narrowness(self.logits.flatten(0, -2)) if above_floor(self.x) else NAN


@torch.no_grad()
def walk(stack: PureStack, x: Tokens, wanted: list[float] | None = None) -> list[Step]:
    """The layers in turn. ``wanted`` is the narrowness that each layer is to have, for the arms that are matched.

    Where there is no match, the logits keep the last multiplier, and the step's gap is NaN.
    """
    steps, radius, multiplier = [], None, 1.0
    for number, layer in enumerate(stack.layers):
        if layer.shape.held == "first" and radius is None:
            radius = squared_radius(*layer.queries_and_keys(x))
        f, score, gap = layer.factors(x, radius), layer.arm.score, NAN
        everything = slice(0, x.shape[-2])
        logits = SCORES[score].function(f, everything, everything)
        if wanted is not None:
            found = match(logits.flatten(0, -2), wanted[number], multiplier) if above_floor(x) else NO_MATCH
            gap, multiplier = found.gap, found.multiplier if math.isfinite(found.multiplier) else multiplier
            f = tempered(f, score, x.new_full((1,), multiplier))
            logits = multiplier * logits
        A = attention(f, score)
        out = layer.move(x, f, A)
        steps.append(Step(layer, x, out, f, logits, A, multiplier, gap))
        x = out
    return steps


def above_floor(x: Tokens) -> bool:
    """Whether any sequence's tokens differ by more than rounding."""
    return any(dong_residual(X) >= FLOOR for X in to_numpy(x))


def of_tokens(x: Tokens) -> dict[str, float]:
    """Spread and rank of the tokens, the mean over the sequences of a batch; of log10 where the name says so."""
    return _mean([_of_matrix(X) for X in to_numpy(x)])


@torch.no_grad()
def of_attention(step: Step) -> dict[str, float]:
    """What the layer's attention, metric and temperature were, the mean over the sequences of a batch."""
    f, A, layer = step.factors, step.A[:, 0], step.layer
    norms = spectral_norms(f.U[:, 0]) if f.U.shape[-1] else torch.full(A.shape[:2], NAN, dtype=A.dtype)
    return {
        "entropy": float(exp_entropy(A.flatten(0, 1)).mean()),
        "entropy_deficit": float(deficits(step.logits.flatten(0, -2))[0].mean()),
        "narrowness": step.narrowness,
        "dobrushin": float(np.mean([dobrushin(one) for one in A])),
        "self_attention": float(A.diagonal(dim1=-2, dim2=-1).mean()),
        "norm_U_mean": float(norms.mean()),
        "norm_U_max": float(norms.max()),
        "R": float(squared_radius(*layer.queries_and_keys(step.x)).mean().sqrt()),
        "tau": float(2 / f.dot_scale.squeeze() if layer.arm.score == "euclidean" else f.tau.squeeze()),
        "match_gap": step.gap,
    }


def of_contraction(step: Step, seed: int, number: int) -> dict[str, float]:
    """Theorem A beside what happened, on the first sequence.

    M is sampled. It is NaN where a score is no function of two contents, or where a transport acts on the values;
    all but the diameter are where the tokens differ by rounding only, and so is the contraction into that.
    """
    X, Y, layer = step.x[0], step.out[0], step.layer
    before, after = diameter(X), diameter(Y)
    if not above_floor(step.x[:1]):
        return {"diameter": after}
    M = NAN
    if layer.arm.content and layer.shape.transport == "none":
        M = sampled_norm(pair_score(step), X, named_generator(seed, f"hull.{number}"))
    contraction = after / before if above_floor(step.out[:1]) else NAN
    return {"M": M, "diameter": after, "contraction": contraction, "bound": bound(M, before)}


def pair_score(step: Step) -> PairScore:
    """s(x, y) of the layer, of two contents (width,): the strength, which all tokens set, is a constant in it."""
    layer, f = step.layer, step.factors
    if layer.arm.score == "euclidean":
        return lambda x, y: f.dot_scale.squeeze() * (layer.queries_and_keys(x)[0] @ layer.queries_and_keys(y)[1])
    gain = (
        spectral_norms(f.U[0, 0]).amax() / spectral_norms(layer.direction(step.x[:1])[0]).amax() if f.U.numel() else 0
    )

    def U(x: Tensor) -> Tensor:
        return gain * layer.direction(x[None, None])[0, 0]

    def score(x: Tensor, y: Tensor) -> Tensor:
        e = layer.queries_and_keys(x)[0] - layer.queries_and_keys(y)[1]
        both = torch.cat([U(x), U(y)], -1)
        squares = e @ e + (both.mT @ e).square().sum() / 2
        return -squares / f.tau.squeeze() - layer.shape.omega * U(y).square().sum()

    return score


def _of_matrix(X: Float64[np.ndarray, "token width"]) -> dict[str, float]:
    values, residual = spectrum(X), dong_residual(X)
    return {
        "log10_residual": math.log10(residual) if residual > 0 else -math.inf,
        "mu": mu(X),
        "effective_rank": effective_rank(values),
        "effective_rank_centred": effective_rank(spectrum(centred(X))),
        "participation_ratio": participation_ratio(values),
    }


def _mean(rows: list[dict[str, float]]) -> dict[str, float]:
    return {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}
