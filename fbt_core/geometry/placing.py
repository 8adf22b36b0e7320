"""Metrics put on the layers of a trace: their units, their strength, and the Omega that goes with them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from fbt_core.attention.scores import Factors
from fbt_core.checkpoints.adapter import Adapter
from fbt_core.geometry.metric import LowRankMetric
from fbt_core.trace import LayerTrace, Trace

CURVATURE_INIT = -3.0
"""beta of Omega = softplus(beta) tr K, where no trained one is at hand (item 6)."""


@dataclass(frozen=True)
class Options:
    """What may be chosen beside the source's name."""

    rank: int = 4
    vocabulary: int | None = 512  # fisher: the likeliest tokens at each position; None for all, exact and slower
    neighbours: int = 16  # local: k
    projection: str = "key"  # W of the quotient: key | query
    normalise: bool = True
    adapter: Adapter | None = None


@dataclass(frozen=True)
class Placed:
    """The metric of one layer in natural units."""

    U: Float[Tensor, "head token dim rank"]
    residual: Float[Tensor, "token width rank"] | None = None  # where the metric lives on the residual stream
    beta: Float[Tensor, " head"] | None = None  # of Omega, where it was trained
    readings: dict[str, float] = field(default_factory=dict)  # for the notes
    fixed: bool = False  # its units mean something: never normalised


LayerFactors = Callable[[LayerTrace], Placed]


def with_strength(trace: Trace, strength: float) -> Trace:
    """A trace that ``apply`` made at strength 1, with every U <- strength U and Omega <- strength^2 Omega: no other
    work is done again, so this is what a slider should call.

    Raises ``ValueError`` for a strength that is negative or not finite, and for a trace without a source, or of another
    strength already.
    """
    if not 0 <= strength < math.inf:
        raise ValueError(f"got strength {strength}, expected a finite number of at least 0")
    if not trace.source or trace.source == "learned" or trace.strength != 1.0:
        raise ValueError("got a trace whose metric is not from a source at strength 1, expected one")
    return replace(trace, layers=tuple(_scaled(layer, strength) for layer in trace.layers), strength=strength)


def with_metric(layer: LayerTrace, placed: Placed, normalise: bool) -> LayerTrace:
    """The layer with that metric in place of its own; tau, q and k stay, in float32 where they were narrower."""
    factors = _widened(layer.given)
    U = mean_one(placed.U) if normalise and not placed.fixed else placed.U
    metric = LowRankMetric(U.to(factors.k))
    beta = U.new_full((len(U),), CURVATURE_INIT) if placed.beta is None else placed.beta.to(U)
    omega = F.softplus(beta)[:, None] * metric.trace.to(U)
    residual = placed.residual
    if residual is not None:
        residual = (mean_one(residual) if normalise else residual).to(layer.residual_in)
    return replace(
        layer, factors=replace(factors, metric=metric, omega=omega.to(factors.k), images=None), residual_U=residual
    )


def _widened(factors: Factors) -> Factors:
    """Squares of a metric in bfloat16 would have two digits."""
    wide = torch.promote_types(factors.k.dtype, torch.float32)
    return replace(factors, q=factors.q.to(wide), k=factors.k.to(wide), v=factors.v.to(wide))


def _scaled(layer: LayerTrace, strength: float) -> LayerTrace:
    if layer.factors is None:
        return layer
    factors = replace(
        layer.factors, metric=layer.metric.scaled(strength), omega=layer.factors.omega * strength**2, images=None
    )
    residual = None if layer.residual_U is None else layer.residual_U * strength
    return replace(layer, factors=factors, residual_U=residual)


def mean_trace(U: Tensor) -> float:
    """Mean tr K over all but the last two axes, in float64."""
    return float(U.double().square().sum((-2, -1)).mean()) if U.numel() else 0.0


def mean_one(U: Tensor) -> Tensor:
    """U scaled to a mean tr K of 1; as it is where it vanishes."""
    natural = mean_trace(U)
    return U / math.sqrt(natural) if natural > 0 else U
