"""The heads of a trace one by one, in float64: what most claims look at."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Float64
from torch import Tensor

from fbt_core.attention.scores import SCORES, Factors, allowed, attention
from fbt_core.measures.maps import in_float64
from fbt_core.trace import LayerTrace, Trace


@dataclass(frozen=True)
class Head:
    """One head of one layer: its place in the trace and its factors, float64, head axis kept at length 1."""

    place: int
    head: int
    factors: Factors
    own: str  # the score that the model itself used

    @property
    def bent(self) -> str:
        """The score that reads the metric: the model's own if it does, else the Riemannian one."""
        return self.own if SCORES[self.own].reads_metric else "riemannian"

    @property
    def finite(self) -> bool:
        """Whether q, k, U and Omega are all finite numbers."""
        f = self.factors
        return all(bool(part.isfinite().all()) for part in (f.q, f.k, f.U, f.omega))

    @property
    def seen(self) -> Bool[Tensor, "row column"]:
        """Which keys each query may attend to."""
        return allowed(self.factors)

    def score(self, name: str) -> Float64[Tensor, "row column"]:
        """The logits by ``SCORES[name]`` of every pair, without mask and position bias, in nats."""
        whole = slice(0, self.factors.q.shape[-2])
        return SCORES[name].function(self.factors, whole, whole)[0]

    def attention(self, name: str) -> Float64[Tensor, "row column"]:
        """The softmax of that score over the keys that each row may see."""
        return attention(self.factors, name)[0]


def heads_of(trace: Trace) -> tuple[Head, ...]:
    """Every head of a trace whose q and k are known, of the same tokens."""
    if trace.rectangular:
        return ()
    return tuple(
        Head(place, head, _exact(layer.select(head)), layer.score)
        for place, layer in enumerate(trace.layers)
        if layer.factors is not None
        for head in range(layer.heads)
    )


def with_metrics(heads: tuple[Head, ...]) -> tuple[Head, ...]:
    """Those whose tokens carry metrics, be they the identity: a collapsed metric is one too."""
    return tuple(head for head in heads if head.factors.metric.rank)


def evenly(heads: tuple[Head, ...], most: int) -> tuple[Head, ...]:
    """At most so many of them, evenly spaced, the first and the last among them."""
    if len(heads) <= most:
        return heads
    return tuple(heads[round(place)] for place in np.linspace(0, len(heads) - 1, most))


def _exact(layer: LayerTrace) -> Factors:
    """The factors in float64; a metric that is so already stays of its own kind."""
    metric, f = layer.given.metric, in_float64(layer).given
    return replace(f, metric=metric) if metric.U.dtype == torch.float64 else f
