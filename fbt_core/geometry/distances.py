"""Four lengths between two tokens: Euclid's, the chord that attention uses, the true one, and the graph's.

A pair (i, j) is measured in token i's slice of the space: from x_i to x_i + E (coordinates of x_j - x_i). Where the
slice is the whole space that is x_j itself and the lengths are symmetric; elsewhere the rest of the residual stays
that of token i, so (i, j) and (j, i) are two different questions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.func import vmap

from fbt_core.geometry.boundary import connect_all
from fbt_core.geometry.curves import Curves, basis, coordinates
from fbt_core.geometry.function import MetricFunction
from fbt_core.geometry.geodesic import Geodesic
from fbt_core.geometry.graph_paths import Graph, graph_lengths, in_slice, segment_lengths
from fbt_core.geometry.model_field import ONE_SPACE, field_points, model_field
from fbt_core.trace import Trace

BATCH = 16
"""Pairs solved together, between two reports of progress."""

SHORTER = 1e-6
"""By how much of its length a graph's path must be shorter for the geodesic to be sought again, from that path."""

Progress = Callable[[int, int], None]
"""(pairs done, pairs in all)."""


@dataclass(frozen=True)
class Distances:
    """Lengths of each pair, in the order of ``pairs``; ``true`` is NaN where no geodesic was found: ``why`` says why.

    euclid <= true holds for g >= I, and true <= graph <= straight wherever the shortest geodesic was found. The chord
    bounds nothing.
    """

    pairs: tuple[tuple[int, int], ...]
    euclid: Float[np.ndarray, " pair"]  # of the slice's coordinates
    chord: Float[np.ndarray, " pair"]
    true: Float[np.ndarray, " pair"]
    error: Float[np.ndarray, " pair"]  # estimated, of ``true``
    straight: Float[np.ndarray, " pair"]  # the straight segment's true length
    graph: Float[np.ndarray, " pair"]  # the shortest path through all the points given
    speed_drift: Float[np.ndarray, " pair"]
    why: tuple[str, ...]  # a sentence a pair; empty where the geodesic was found

    def matrix(self, name: str, count: int, symmetric: bool = False) -> Float[np.ndarray, "count count"]:
        """One of the lengths as a matrix: 0 on the diagonal, NaN where no pair was asked for."""
        found = np.full((count, count), np.nan)
        np.fill_diagonal(found, 0)
        for (i, j), value in zip(self.pairs, getattr(self, name), strict=True):
            found[i, j] = value
            if symmetric:
                found[j, i] = value
        return found


def chords(g: MetricFunction, x: Float[Tensor, "pair space"], y: Float[Tensor, "pair space"]) -> Float[Tensor, " pair"]:
    """sqrt(delta^T (g_x + g_y)/2 delta), delta the coordinates of y - x, g_y at y's place in x's slice (item 4)."""
    x, y = x.double(), y.double()
    if not len(x):
        return x.new_zeros(0)
    delta = coordinates(g, y - x)
    ends = x + vmap(g.embed)(delta)
    return ((vmap(g.inner)(x, delta, delta) + vmap(g.inner)(ends, delta, delta)) / 2).sqrt()


def chord(g: MetricFunction, x: Float[Tensor, " space"], y: Float[Tensor, " space"]) -> float:
    """``chords`` of one pair."""
    return float(chords(g, x[None], y[None])[0])


def every_pair(count: int) -> list[tuple[int, int]]:
    """All pairs i < j of ``count`` points."""
    return [(i, j) for i in range(count) for j in range(i + 1, count)]


def distances(
    g: MetricFunction, points: Float[Tensor, "n space"], pairs: Sequence[tuple[int, int]] | None = None,
    neighbours: int | None = None, progress: Progress | None = None,
) -> Distances:  # fmt: skip
    """All lengths of the pairs, by default every i < j, and the graph over all ``points`` (see ``graph_lengths``).

    Where the graph's path is shorter than the geodesic found, that geodesic is not the shortest one, and the search
    begins again from the path. Raises ``ValueError`` for points that are not finite.
    """
    points = points.double()
    pairs = list(every_pair(len(points)) if pairs is None else pairs)
    rows = torch.tensor([i for i, _ in pairs], dtype=torch.long)
    columns = torch.tensor([j for _, j in pairs], dtype=torch.long)
    x, y = points[rows], points[columns]
    graphs = {i: graph_lengths(g, in_slice(g, points, points[i]), neighbours) for i in _origins(g, pairs)}
    found: list[Geodesic] = []
    for start in range(0, len(pairs), BATCH):
        some = slice(start, start + BATCH)
        found += connect_all(g, x[some], y[some], samples=9)
        if progress is not None:
            progress(len(found), len(pairs))
    graph = np.array([_graph_of(graphs, i).lengths[i, j] for i, j in pairs])
    found = [improved(g, points, _graph_of(graphs, i), i, j, one) for (i, j), one in zip(pairs, found, strict=True)]
    return Distances(
        tuple(pairs), coordinates(g, y - x).norm(dim=-1).numpy(force=True), chords(g, x, y).numpy(force=True),
        np.array([one.length if one.converged else np.nan for one in found]), np.array([one.error for one in found]),
        segment_lengths(g, x, y)[0].numpy(force=True), graph, np.array([one.speed_drift for one in found]),
        tuple(one.why for one in found),
    )  # fmt: skip


def token_distances(
    model: Any, trace: Trace, layer: int, head: int = 0, reading: str = "whole", tokens: Sequence[int] | None = None,
    neighbours: int | None = None, progress: Progress | None = None,
) -> Distances:  # fmt: skip
    """``distances`` of every pair i < j of some ``tokens`` (default all) of a model; pairs count within ``tokens``.

    The metric of the source `fisher` is a function on one token's slice at a time, so there each pair has the slice of
    its first. Raises ``ValueError`` as ``model_field`` does.
    """
    tokens = list(range(trace.length) if tokens is None else tokens)
    points = field_points(trace, layer)[tokens]
    if trace.source not in ONE_SPACE:
        return distances(model_field(model, trace, layer, head, reading), points, None, neighbours, progress)
    total, parts = len(every_pair(len(tokens))), []
    for i, token in enumerate(tokens[:-1]):
        done = sum(len(part.pairs) for part in parts)
        report = None if progress is None else partial(_shifted, progress, done, total)
        pairs = [(i, j) for j in range(i + 1, len(tokens))]
        parts.append(
            distances(model_field(model, trace, layer, head, reading, token), points, pairs, neighbours, report)
        )
    return _joined(parts) if parts else distances(model_field(model, trace, layer, head, reading), points)


def _shifted(progress: Progress, before: int, total: int, done: int, _: int) -> None:
    progress(before + done, total)


def _joined(parts: Sequence[Distances]) -> Distances:
    joined = {}
    for one in fields(Distances):
        values = [getattr(part, one.name) for part in parts]
        arrays = isinstance(values[0], np.ndarray)
        joined[one.name] = np.concatenate(values) if arrays else tuple(chain.from_iterable(values))
    return Distances(**joined)


def through(g: MetricFunction, points: Float[Tensor, "n space"], path: Sequence[int], samples: int = 9) -> Geodesic:
    """The geodesic that the descent finds from a path through some of the points, all in the slice of its first."""
    x = points[path[0]]
    places = coordinates(g, points[list(path)] - x)
    moves = places.diff(dim=0)
    legs, _ = segment_lengths(g, x + vmap(g.embed)(places[:-1]), x + vmap(g.embed)(places[1:]))
    times = torch.cat([legs.new_zeros(1), legs.cumsum(0) / legs.sum()])
    position, _ = basis(_PATH_DEGREE, times)
    time = times.diff()[:, None]
    along = torch.where(time > 0, moves / torch.where(time > 0, time, 1), 0)  # a repeated token takes no time
    z = position.diff(dim=0).mT @ along  # int p_k c' dt, c' constant on each leg
    curve = Curves(x[None], places[-1:], z[None])
    return connect_all(g, x[None], points[path[-1]][None], samples=samples, starts=curve)[0]


_PATH_DEGREE = 8


def improved(
    g: MetricFunction, points: Float[Tensor, "n space"], graph: Graph, i: int, j: int, found: Geodesic, samples: int = 9
) -> Geodesic:
    """``found``; or, where the graph's path from i to j is the shorter, the geodesic that begins there, if that is.

    ``samples`` points of that one are kept, both ends included.
    """
    path = graph.path(i, j)
    if len(path) < 3 or (found.converged and graph.lengths[i, j] >= found.length * (1 - SHORTER)):
        return found
    new = through(g, points, path, samples)
    return new if new.converged and (not found.converged or new.length < found.length) else found


def _origins(g: MetricFunction, pairs: Sequence[tuple[int, int]]) -> list[int]:
    """One graph serves all where the slice is the whole space; elsewhere each first token has its own."""
    firsts = sorted({i for i, _ in pairs})
    return firsts[:1] if g.inclusion is None else firsts


def _graph_of(graphs: dict[int, Graph], i: int) -> Graph:
    return graphs[i] if i in graphs else next(iter(graphs.values()))
