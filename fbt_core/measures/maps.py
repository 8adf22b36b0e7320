"""Attention one head at a time, in float64 and in tiles of rows: what the attention measures are read from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Float64
from torch import Tensor

from fbt_core.geometry.metric import LowRankMetric
from fbt_core.measures.options import OWN
from fbt_core.measures.table import Measured
from fbt_core.measures.tokens import describe_nonfinite, to_float64, to_numpy, token_labels
from fbt_core.trace import LayerTrace, Trace

Rows = Float64[Tensor, "row token"]
Map = Float64[Tensor, "row token"]

TILE = 64
"""Rows of attention held at a time: O(TILE L) numbers. Small enough to stay in the cache."""


def in_float64(layer: LayerTrace, alpha: float | None = None) -> LayerTrace:
    """The layer with its attention in float64, so that no measure is limited by the dtype that the model ran in.

    ``alpha`` replaces the model's own in the blended score.
    """
    f = layer.factors
    if f is None:
        return replace(layer, maps=None if layer.maps is None else to_float64(layer.maps))
    names = ("q", "k", "v", "tau", "omega", "slopes", "scale", "mask", "sinks")
    parts = {name: None if (part := getattr(f, name)) is None else to_float64(part) for name in names}
    factors = replace(f, **parts, metric=LowRankMetric(to_float64(f.U)), images=None)
    return replace(layer, factors=factors if alpha is None else factors.with_alpha(alpha))


def tiles(length: int) -> Iterator[slice]:
    """All rows, ``TILE`` at a time."""
    return (slice(start, min(start + TILE, length)) for start in range(0, length, TILE))


def each_head(
    function: Callable[[LayerTrace], Tensor], trace: Trace, scores: tuple[str, ...], shape: tuple[int, ...] = (),
    alpha: float | None = None,
) -> Measured:  # fmt: skip
    """``function`` of every head of every layer, given as a layer of that one head in float64: (layer, head, *shape).

    NaN, with a note, where a layer has no such head, or no attention by ``scores``.
    """
    values = np.full((len(trace.layers), trace.heads, *shape), np.nan)
    notes = []
    for place, layer in enumerate(trace.layers):
        if missing := next(filter(None, (layer.unavailable(_named(layer, score)) for score in scores)), ""):
            notes.append(missing)
            continue
        for head in range(layer.heads):
            values[place, head] = to_numpy(function(in_float64(layer.select(head), alpha)))
    return Measured(values, (*notes, *nonfinite_notes(trace)))


def rows_of(layer: LayerTrace, score: str, rows: slice) -> Rows:
    """Some rows of the attention of a layer of one head."""
    return layer.attention(0, _named(layer, score), rows)


def by_row(function: Callable[[Rows], Tensor], trace: Trace, *, score: str, alpha: float | None) -> Measured:
    """``function`` of every row of every head: (layer, head, token)."""

    def values(layer: LayerTrace) -> Tensor:
        return torch.cat([function(rows_of(layer, score, rows)) for rows in tiles(trace.length)])

    return each_head(values, trace, (score,), (trace.length,), alpha)


def by_two_rows(
    function: Callable[[Rows, Rows], Tensor], trace: Trace, *, score_a: str, score_b: str, alpha: float | None
) -> Measured:
    """``function`` of every row under two scores on the same factors: (layer, head, token)."""

    def values(layer: LayerTrace) -> Tensor:
        parts = [function(rows_of(layer, score_a, rows), rows_of(layer, score_b, rows)) for rows in tiles(trace.length)]
        return torch.cat(parts)

    return each_head(values, trace, (score_a, score_b), (trace.length,), alpha)


def by_map(function: Callable[[Map], float], trace: Trace, *, score: str, alpha: float | None) -> Measured:
    """``function`` of every head's whole map, one map in memory: (layer, head). NaN where the map is not finite."""

    def value(layer: LayerTrace) -> Tensor:
        whole = torch.cat([rows_of(layer, score, rows) for rows in tiles(trace.length)])
        return torch.tensor(function(whole) if whole.isfinite().all() else float("nan"), dtype=torch.float64)

    return each_head(value, trace, (score,), (), alpha)


def nonfinite_notes(trace: Trace) -> tuple[str, ...]:
    """A note for every layer in which q, k, U or Omega holds NaN or infinity."""
    notes = []
    for layer in trace.layers:
        f = layer.factors
        if f is None:
            continue
        parts = (f.q,) if trace.rectangular else (f.q, f.k, f.U, f.omega[..., None])
        entries = torch.cat([part.transpose(0, 1).flatten(1) for part in parts], 1)
        if not entries.isfinite().all():
            named = describe_nonfinite(to_numpy(entries), token_labels(trace))
            notes.append(f"layer {layer.index}: q, k, U or Omega has {named}")
    return tuple(notes)


def _named(layer: LayerTrace, score: str) -> str:
    return layer.score if score == OWN else score
