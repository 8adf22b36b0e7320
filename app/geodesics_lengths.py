"""Numbers of the geodesics page, from a model and its trace: ways between tokens, and rows of matrices of lengths."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from app.geodesics_scene import field_of
from fbt_core.attention.scores import allowed
from fbt_core.attention.true_distance import true_distance_attention
from fbt_core.geometry.boundary import connect, connect_all, coordinates
from fbt_core.geometry.distances import chord, chords, improved
from fbt_core.geometry.geodesic import Geodesic
from fbt_core.geometry.graph_paths import graph_lengths, in_slice
from fbt_core.geometry.model_field import ONE_SPACE, field_points
from fbt_core.trace import Trace

GRAPH_TOKENS = 64
"""Tokens that the graph path may go through: those nearest to the two ends."""

SAMPLES = 65
"""Points at which the geodesic is drawn."""

ROUGH = 1e-6
"""Relative, of the lengths of a matrix: a picture's colours need no more."""


@dataclass(frozen=True)
class Way:
    """The ways from a token to another; where the metric's slice does not hold that one, to its place in the slice."""

    lengths: dict[str, float]  # euclid, chord, true, graph; NaN where there is none
    straight: np.ndarray  # (2, D)
    geodesic: np.ndarray | None = None  # (n, D)
    graph: np.ndarray | None = None  # (k, D), from token to token
    passed: tuple[int, ...] = ()  # tokens of the graph path
    neighbours: int = 0  # to which the graph joins each token: as many as asked for, or more until there is a path
    error: float = 0.0  # of the true length
    drift: float = 0.0  # of the geodesic's speed, relative
    steps: int = 0
    why: str = ""  # why there is no geodesic to be trusted


def way(
    model: Any, trace: Trace, *, layer: int, head: int, reading: str, first: int, second: int, neighbours: int = 3
) -> Way:
    """Geodesic, chord and graph path from token ``first`` to ``second``; the graph joins each token to its nearest."""
    g = field_of(model, trace, layer, head, reading, first)
    tokens = field_points(trace, layer)
    places = in_slice(g, tokens, tokens[first])
    x, y = places[first], places[second]
    straight = torch.stack([x, y]).numpy(force=True)
    if not np.isfinite(straight).all():
        nothing = dict.fromkeys(("euclid", "chord", "true", "graph"), float("nan"))
        return Way(nothing, straight, why="one of the two tokens is not finite")
    lengths = {"euclid": float(coordinates(g, y - x).norm()), "chord": chord(g, x, y)}
    if first == second:
        return Way(dict.fromkeys(("euclid", "chord", "true", "graph"), 0.0), straight)
    near = _near(places, first, second)
    graph = graph_lengths(g, places[near], neighbours)
    while not graph.path(0, 1) and neighbours < len(near):  # the nearest of many tokens may be islands
        neighbours *= 2
        graph = graph_lengths(g, places[near], neighbours)
    nodes, bound = graph.path(0, 1), float(graph.lengths[0, 1])
    found = connect(g, x, y, samples=SAMPLES, shot=False)
    found = improved(g, places[near], graph, 0, 1, found, SAMPLES)
    lengths |= {"true": _length(found), "graph": bound}
    return Way(
        lengths, straight, found.points.numpy(force=True), places[near][nodes].numpy(force=True),
        tuple(int(near[node]) for node in nodes), neighbours, found.error, found.speed_drift,
        found.steps, found.why,
    )  # fmt: skip


def _near(places: Tensor, first: int, second: int) -> Tensor:
    """The two ends, then the tokens nearest to either, all finite."""
    far = torch.minimum((places - places[first]).norm(dim=1), (places - places[second]).norm(dim=1))
    order = far.argsort()
    others = order[(order != first) & (order != second) & far[order].isfinite()]
    return torch.cat([torch.tensor([first, second]), others.cpu()[: GRAPH_TOKENS - 2]])


def _length(found: Geodesic) -> float:
    """NaN for one that was not found: a curve that is no geodesic has no true length."""
    return found.length if found.converged else float("nan")


def row(
    model: Any, trace: Trace, *, layer: int, head: int, reading: str, token: int, others: tuple[int, ...]
) -> dict[str, np.ndarray]:
    """Lengths (n,) from ``token`` to each of the ``others``: true, its error, chord, euclid."""
    names = ("true", "error", "chord", "euclid")
    g = field_of(model, trace, layer, head, reading, token)
    tokens = field_points(trace, layer)
    x, y = tokens[token].expand(len(others), -1), tokens[list(others)]
    unknown = g.inclusion is None and trace.source in ONE_SPACE  # this one token has no metric, but others have
    if unknown or not (others and x.isfinite().all() and y.isfinite().all()):
        return {name: np.full(len(others), np.nan) for name in names}
    found = connect_all(g, x, y, ROUGH, samples=2)
    return {
        "true": np.array([_length(one) for one in found]), "error": np.array([one.error for one in found]),
        "chord": chords(g, x, y).numpy(force=True), "euclid": coordinates(g, y - x).norm(dim=1).numpy(force=True),
    }  # fmt: skip


@dataclass(frozen=True)
class Replaced:
    """Attention (n, n) of one head among n tokens by the chord and by the true distance, and what rows may see."""

    chord: np.ndarray
    true: np.ndarray
    hidden: np.ndarray  # bool
    score: str

    @property
    def variation(self) -> np.ndarray:
        """(n,) total variation of each row, in [0, 1]."""
        return np.abs(self.true - self.chord).sum(1) / 2

    def entropy(self, which: str) -> np.ndarray:
        """(n,) of the rows, in nats."""
        p = getattr(self, which)
        return -np.where(p > 0, p * np.log(np.where(p > 0, p, 1)), 0).sum(1)


def replaced(trace: Trace, layer: int, head: int, ratio: np.ndarray, first: int) -> Replaced:
    """Attention among the tokens from ``first`` on when each squared chord is multiplied by ``ratio``^2 (n, n).

    The score is s_ij = -chord_ij^2 / tau - Omega_j, of q_i and k_j: the ratio of true to chord is that of the tokens'
    places. Where it is not known it counts as 1. A blended score keeps its dot product as it is.
    """
    f = trace.layers[layer].given.select(head)
    some = slice(first, first + len(ratio))
    own = trace.layers[layer].score
    score = own if own == "blended" else "riemannian"
    known = torch.from_numpy(np.where(np.isfinite(ratio), ratio, 1.0) ** 2).to(f.q.device)
    before, after = (
        true_distance_attention(f, one, score, some)[0].double().numpy(force=True)
        for one in (torch.ones_like(known), known)
    )
    named = score if trace.has_metric else "l2"  # which the Riemannian score is where g = I
    return Replaced(before, after, ~allowed(f, some)[:, some].numpy(force=True), named)
