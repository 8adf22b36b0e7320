"""Where the claims on curvature and distance look: some heads and some tokens, spread over the model and the text."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float64
from torch import Tensor

from fbt_core.claims.evidence import Evidence, Unavailable
from fbt_core.geometry.function import MetricFunction
from fbt_core.geometry.model_field import ONE_SPACE, field_points, field_unavailable, model_field

HEADS = 24
"""Heads at most, in all layers together."""

READING_NOTE = (
    "The metric as a function of the residual stream that enters a layer; block h of the stream is identified with "
    "head h's space, our choice."
)


def chosen(count: int, most: int) -> list[int]:
    """At most ``most`` of ``count`` places, evenly spread, the first and the last among them where most > 1."""
    if count <= most:
        return list(range(count))
    return torch.linspace(0, count - 1, most, dtype=torch.float64).round().long().tolist()


def fields(
    evidence: Evidence, tokens: int
) -> Iterator[tuple[int, int, MetricFunction, Float64[Tensor, "some width"], list[int]]]:
    """(place, head, metric function, points, their tokens) of at most ``HEADS`` heads, spread over the layers.

    Raises ``Unavailable`` with the reason where the metric is no function of a point, or no point is finite.
    """
    trace = evidence.trace
    if trace.source in ONE_SPACE:
        raise Unavailable(f"the metric of the source {trace.source} lives on one slice a token and not on a head")
    if why := field_unavailable(evidence.model, trace):
        raise Unavailable(why)
    reading = "block" if trace.heads and _heads_tile_the_stream(evidence) else "key"
    places = [(i, h) for i, layer in enumerate(trace.layers) for h in range(layer.heads)]
    places = [one for one in places if not field_unavailable(evidence.model, trace, one[0])]
    for index in chosen(len(places), HEADS):
        place, head = places[index]
        x = field_points(trace, place)
        good = torch.arange(len(x), device=x.device)[x.isfinite().all(-1)].tolist()
        some = [good[i] for i in chosen(len(good), tokens)]
        yield place, head, model_field(evidence.model, trace, place, head, reading), x[some], some


def _heads_tile_the_stream(evidence: Evidence) -> bool:
    """Whether H heads of width d make up the residual stream, so that block h is a head's."""
    found = [layer for layer in evidence.trace.layers if layer.factors is not None]
    return all(layer.heads * layer.given.q.shape[-1] == layer.residual_in.shape[1] for layer in found)
