"""Shortest paths through the tokens: an upper bound of the true distance, and labelled so.

An edge's length is that of the straight segment *under the field*, int sqrt(g(delta, delta)) dt, a true length of a
true curve. So every path is a curve and no shorter than the distance; with chords for edges it would bound nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from fbt_core.geometry.curves import Curves, coordinates, lengths
from fbt_core.geometry.function import MetricFunction

NODES = (8, 16, 32, 64, 128)
"""Of Gauss's rule on a segment, one after another until the length stays."""

ACCURACY = 1e-9
"""Relative, of a segment's length: more nodes are taken until the change is below, or there are no more."""

BATCH = 2048
"""Segments measured at once."""


@dataclass(frozen=True)
class Graph:
    """Shortest paths between n points. ``inf``, and an empty path, where the graph has no way."""

    lengths: Float[np.ndarray, "n n"]  # upper bounds of the distances
    before: Int[np.ndarray, "n n"]  # the last point but one on the way from row to column; negative: none
    edges: Float[np.ndarray, "n n"]  # lengths of the segments; inf where there is no edge
    errors: Float[np.ndarray, "n n"]  # of the edges' lengths, estimated; inf where there is no edge

    def path(self, start: int, end: int) -> list[int]:
        """The points on the way, both ends included."""
        way = [end]
        while way[-1] != start:
            if (previous := int(self.before[start, way[-1]])) < 0:
                return []
            way.append(previous)
        return way[::-1]

    def path_error(self, start: int, end: int) -> float:
        """The estimated error of the way's length; infinite where there is no way."""
        way = self.path(start, end)
        return float(sum(self.errors[a, b] for a, b in pairwise(way))) if way else float("inf")


def in_slice(
    g: MetricFunction, points: Float[Tensor, "n space"], origin: Float[Tensor, " space"]
) -> Float[Tensor, "n space"]:
    """The points as the slice through ``origin`` sees them: origin + E (coordinates of point - origin)."""
    return points if g.inclusion is None else origin + coordinates(g, points - origin) @ g.inclusion.mT


def segment_lengths(
    g: MetricFunction, x: Float[Tensor, "pair space"], y: Float[Tensor, "pair space"]
) -> tuple[Float[Tensor, " pair"], Float[Tensor, " pair"]]:
    """The length of the straight segment from each x to y (in x's slice) under the field, and its estimated error.

    A segment is a curve: its length is at least the distance. Where the metric is not finite neither is the length.
    """
    batches = zip(x.split(BATCH), y.split(BATCH), strict=True)
    parts = [_measured(g, a.double(), b.double()) for a, b in batches if len(a)]  # no pair at all is one empty batch
    empty = x.new_zeros(0, dtype=torch.float64)
    return torch.cat([empty, *(part[0] for part in parts)]), torch.cat([empty, *(part[1] for part in parts)])


def _measured(g: MetricFunction, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    delta = coordinates(g, y - x)
    segments = Curves(x, delta, delta.new_zeros(len(x), 0, g.dim))
    length = lengths(g, segments, NODES[0])
    error = torch.full_like(length, float("inf"))
    for nodes in NODES[1:]:
        rough = ~(error <= ACCURACY * length)
        if not rough.any():
            break
        finer = lengths(g, segments[rough], nodes)
        error[rough], length[rough] = (finer - length[rough]).abs(), finer
    return length, error


def graph_lengths(g: MetricFunction, points: Float[Tensor, "n space"], neighbours: int | None = None) -> Graph:
    """Shortest paths over the complete graph of the points, or that of each one's k nearest ``neighbours``.

    Nearest by Euclid's distance, an edge in either direction counts for both. All points must lie in one slice: see
    ``in_slice``. Two points in the same place have an edge of length 0. Raises ``ValueError`` for less than one
    neighbour and for points that are not finite.
    """
    if neighbours is not None and neighbours < 1:
        raise ValueError(f"got {neighbours} neighbours, expected at least 1")
    if not points.isfinite().all():
        raise ValueError("got points that are not finite, expected finite ones")
    points, n = points.double(), len(points)
    rows, columns = _edges(points, neighbours)
    edges, errors = (_matrix(rows, columns, v, n) for v in segment_lengths(g, points[rows], points[columns]))
    return Graph(*_shortest(edges), edges, errors)


def _shortest(edges: Float[np.ndarray, "n n"]) -> tuple[Float[np.ndarray, "n n"], Int[np.ndarray, "n n"]]:
    """Floyd and Warshall's algorithm, O(n^3): SciPy's takes an edge of length 0, of a repeated token, for none."""
    found, n = edges.copy(), len(edges)
    before = np.where(np.isfinite(edges), np.arange(n)[:, None], -1)
    for middle in range(n):
        by_middle = found[:, middle, None] + found[middle]
        before = np.where(by_middle < found, before[middle], before)
        found = np.minimum(found, by_middle)
    return found, before


def _matrix(rows: Tensor, columns: Tensor, values: Tensor, n: int) -> Float[np.ndarray, "n n"]:
    matrix = np.full((n, n), np.inf)
    np.fill_diagonal(matrix, 0)
    matrix[rows.numpy(), columns.numpy()] = matrix[columns.numpy(), rows.numpy()] = values.detach().cpu().numpy()
    return matrix


def _edges(points: Tensor, neighbours: int | None) -> tuple[Int[Tensor, " edge"], Int[Tensor, " edge"]]:
    """Pairs i < j."""
    n = len(points)
    wanted = torch.ones(n, n, dtype=torch.bool)
    if neighbours is not None and neighbours < n - 1:
        apart = torch.cdist(points, points, compute_mode="donot_use_mm_for_euclid_dist").fill_diagonal_(float("inf"))
        wanted = torch.zeros(n, n, dtype=torch.bool)
        wanted.scatter_(1, apart.topk(neighbours, largest=False).indices.cpu(), True)
        wanted = wanted | wanted.mT
    rows, columns = wanted.triu(1).nonzero(as_tuple=True)
    return rows, columns
