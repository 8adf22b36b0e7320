"""Attention one head at a time, in float64 and in tiles of rows: what the attention measures are read from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Float64
from torch import Tensor

from fbt_core.attention.scores import Factors, attention
from fbt_core.geometry.metric import LowRankMetric
from fbt_core.measures.options import OWN
from fbt_core.measures.table import Measured
from fbt_core.measures.tokens import describe_nonfinite, to_float64, to_numpy, token_labels
from fbt_core.trace import LayerTrace, Trace

Rows = Float64[Tensor, "row token"]
Map = Float64[Tensor, "token token"]

TILE = 64
"""Rows of attention held at a time: O(TILE L) numbers. Small enough to stay in the cache."""


def in_float64(f: Factors) -> Factors:
    """The same factors in float64, so that no measure is limited by the dtype that the model ran in."""
    parts = {name: to_float64(getattr(f, name)) for name in ("q", "k", "v", "tau", "omega")}
    slopes = None if f.slopes is None else to_float64(f.slopes)
    return replace(f, **parts, slopes=slopes, metric=LowRankMetric(to_float64(f.U)))


def tiles(length: int) -> Iterator[slice]:
    """All rows, ``TILE`` at a time."""
    return (slice(start, min(start + TILE, length)) for start in range(0, length, TILE))


def each_head(trace: Trace, alpha: float | None = None) -> Iterator[tuple[LayerTrace, Factors]]:
    """Every layer's every head, the head axis kept at length 1."""
    for layer in trace.layers:
        factors = layer.factors if alpha is None else layer.factors.with_alpha(alpha)
        for head in range(factors.q.shape[0]):
            yield layer, in_float64(factors.select(head))


def rows_of(layer: LayerTrace, f: Factors, score: str, rows: slice) -> Rows:
    """Some rows of one head's attention."""
    return attention(f, layer.score if score == OWN else score, rows)[0]


def by_row(function: Callable[[Rows], Tensor], trace: Trace, *, score: str, alpha: float | None) -> Measured:
    """``function`` of every row of every head: (layer, head, token)."""
    values = [
        torch.cat([function(rows_of(layer, f, score, rows)) for rows in tiles(trace.length)])
        for layer, f in each_head(trace, alpha)
    ]
    return gathered(values, trace)


def by_two_rows(
    function: Callable[[Rows, Rows], Tensor], trace: Trace, *, score_a: str, score_b: str, alpha: float | None
) -> Measured:
    """``function`` of every row under two scores on the same factors: (layer, head, token)."""
    values = [
        torch.cat(
            [
                function(rows_of(layer, f, score_a, rows), rows_of(layer, f, score_b, rows))
                for rows in tiles(trace.length)
            ]
        )
        for layer, f in each_head(trace, alpha)
    ]
    return gathered(values, trace)


def by_map(function: Callable[[Map], float], trace: Trace, *, score: str, alpha: float | None) -> Measured:
    """``function`` of every head's whole map, one map in memory: (layer, head). NaN where the map is not finite."""
    values = []
    for layer, f in each_head(trace, alpha):
        whole = torch.cat([rows_of(layer, f, score, rows) for rows in tiles(trace.length)])
        value = function(whole) if whole.isfinite().all() else float("nan")
        values.append(torch.tensor(value, dtype=torch.float64))
    return gathered(values, trace)


def gathered(values: list[Tensor], trace: Trace) -> Measured:
    """One tensor a head, layers outermost, as an array; factors that are not finite are named."""
    stacked = np.stack([to_numpy(value) for value in values])
    return Measured(stacked.reshape(len(trace.layers), -1, *stacked.shape[1:]), nonfinite_notes(trace))


def nonfinite_notes(trace: Trace) -> tuple[str, ...]:
    """A note for every layer in which q, k, U or Omega holds NaN or infinity."""
    notes = []
    for layer in trace.layers:
        f = layer.factors
        entries = torch.cat([part.transpose(0, 1).flatten(1) for part in (f.q, f.k, f.U, f.omega[..., None])], 1)
        if not entries.isfinite().all():
            named = describe_nonfinite(to_numpy(entries), token_labels(trace))
            notes.append(f"layer {layer.index}: q, k, U or Omega has {named}")
    return tuple(notes)
