"""Numbers of the torsion page, from a model and its trace: planes and angles, and vectors carried around loops."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from app.figures.torsion import Planes
from app.geodesics_scene import field_of
from fbt_core.geometry.drawn_space import Basis, shared_pca
from fbt_core.geometry.function import MetricFunction
from fbt_core.geometry.graph_paths import in_slice
from fbt_core.geometry.levi_civita import transport
from fbt_core.geometry.loops import Holonomy, gauge_holonomy, holonomy
from fbt_core.geometry.model_field import field_points
from fbt_core.geometry.torsion_planes import torsion_planes, turned_share
from fbt_core.trace import Trace

VECTORS = {
    "next": "towards the next token",
    "metric": "leading direction of the metric",
    "turned": "of the plane that turns most",
}
"""The vector that is carried: name to title. The first has a sign, the others have none."""

FINE, ROUGH = 1e-6, 1e-5
"""Tolerance of a step of the transport: of the loop that is drawn, and of those in the table."""

EDGE = 25
"""Points at which an edge of a loop is drawn."""


@dataclass(frozen=True)
class Turns:
    """FiberTransport of a trace. ``angles`` is (layer, head, token, r') in radians, descending, NaN where none is.

    ``share`` (layer, head, token): ||y - y'|| / (||y|| + ||y'||) of the value output with and without the turn.
    """

    angles: np.ndarray
    share: np.ndarray
    transport: str  # none, key, frame


def turns(model: Any, trace: Trace) -> Turns:
    """Angles and shares of every layer that has torsion. Raises ``ValueError`` for a model without any."""
    config = model.config
    ranks = [layer.torsion[0].shape[-1] for layer in trace.layers if layer.torsion is not None]
    if not ranks:
        raise ValueError("got a model without torsion, expected one with a TorsionNet")
    shape = (len(trace.layers), trace.heads, trace.length)
    angles, share = np.full((*shape, max(ranks)), np.nan), np.full(shape, np.nan)
    for place, layer in enumerate(trace.layers):
        if layer.torsion is None:
            continue
        found = torsion_planes(*layer.torsion).angles.cpu().numpy()
        angles[place, : layer.heads, :, : found.shape[-1]] = found
        share[place, : layer.heads] = turned_share(layer, config.transport, config.metric_compatible).cpu().numpy()
    return Turns(angles, share, config.transport)


def value_planes(trace: Trace, layer: int, head: int, along: Basis | None = None) -> Planes:
    """Rotation planes of one head in the picture of its values, and where each value points in them."""
    given = trace.layers[layer]
    assert given.torsion is not None
    found = torsion_planes(*(part[head] for part in given.torsion))
    P = (along or shared_pca(trace, "values", head)).directions.cpu()
    v = given.given.v[head].detach().cpu().double()
    pairs = found.planes.detach().cpu()
    parts = torch.einsum("tpkd,td->tpk", pairs, v)
    inside = parts.norm(dim=-1) > 1e-9 * v.norm(dim=-1, keepdim=True)
    phase = torch.where(inside, torch.atan2(parts[..., 1], parts[..., 0]), torch.nan)
    return Planes((pairs @ P.mT).numpy(), found.angles.detach().cpu().numpy(), phase.numpy())


@dataclass(frozen=True)
class Loop:
    """A loop of tokens: what Levi-Civita transport makes of one vector and of all, and what FiberTransport does."""

    tokens: tuple[int, ...]
    angles: np.ndarray  # of the holonomy's planes, radians, descending, without sign
    error: float  # of the holonomy matrix: largest entry of M^T M - I
    length: float  # of the geodesics, in all
    why: str  # what went wrong; empty where nothing did
    gauge: float  # largest entry of FiberTransport's holonomy less the identity; NaN without torsion
    edges: tuple[np.ndarray, ...] = ()  # (k, D) each
    stations: np.ndarray | None = None  # (n + 1, D), the first again at the end
    vectors: np.ndarray | None = None  # (n + 1, D), E w at each station
    coordinates: np.ndarray | None = None  # (d,), w at the start
    turned: float = float("nan")  # angle between the vector at the start and when it is back, radians
    kept: float = float("nan")  # largest relative change of its length on the way

    @property
    def largest(self) -> float:
        """The largest holonomy angle."""
        return float(self.angles.max()) if self.angles.size else float("nan")


def loop_of(
    model: Any, trace: Trace, *, layer: int, head: int, reading: str, tokens: tuple[int, ...], rough: bool = False
) -> Loop:
    """The holonomy of a loop of tokens. Raises ``ValueError`` for tokens that are not finite."""
    return _measured(model, trace, layer, head, reading, tokens, ROUGH if rough else FINE)[0]


def carried(
    model: Any, trace: Trace, *, layer: int, head: int, reading: str, tokens: tuple[int, ...], vector: str
) -> Loop:
    """The same loop with one vector carried around it, of length 1 in the metric."""
    loop, g, found, corners = _measured(model, trace, layer, head, reading, tokens, FINE)
    start = _start(g, corners[0], found, vector)
    w, vectors, lengths = start, [start], []
    for edge in found.edges:
        way = transport(g, edge, w, FINE, samples=5)
        w = way.vectors[-1, 0]
        vectors.append(w)
        lengths += [g.inner(x, a[0], a[0]).sqrt() for x, a in zip(way.points, way.vectors, strict=True)]
    times = torch.linspace(0, 1, EDGE, dtype=torch.float64, device=corners.device)
    return replace(
        loop, edges=tuple(edge(times)[0].numpy(force=True) for edge in found.edges),
        stations=torch.cat([corners, corners[:1]]).numpy(force=True),
        vectors=torch.stack([g.embed(one) for one in vectors]).numpy(force=True),
        coordinates=start.numpy(force=True), turned=angle_between(g, corners[0], start, w),
        kept=float((torch.stack(lengths) - 1).abs().max()),
    )  # fmt: skip


def angle_between(g: MetricFunction, x: Tensor, a: Tensor, b: Tensor) -> float:
    """The angle of two vectors at x in the metric, radians in [0, pi]; an arc cosine would lose the small ones."""

    def size(v: Tensor) -> Tensor:
        return g.inner(x, v, v).sqrt()

    a, b = a / size(a), b / size(b)
    return float(2 * torch.atan2(size(a - b), size(a + b)))


def _measured(
    model: Any, trace: Trace, layer: int, head: int, reading: str, tokens: tuple[int, ...], tolerance: float
) -> tuple[Loop, MetricFunction, Holonomy, Tensor]:
    g = field_of(model, trace, layer, head, reading, tokens[0])
    points = field_points(trace, layer)[list(tokens)]
    if not points.isfinite().all():
        raise ValueError(f"got tokens {', '.join(map(str, tokens))} of which one is not finite, expected finite ones")
    corners = in_slice(g, points, points[0])
    found = holonomy(g, corners, tolerance=tolerance)
    loop = Loop(
        tokens,
        found.angles.numpy(force=True),
        found.error,
        float(sum(found.lengths)),
        found.why,
        gauge(model, trace, layer, head, tokens),
    )
    return loop, g, found, corners


def gauge(model: Any, trace: Trace, layer: int, head: int, tokens: tuple[int, ...]) -> float:
    """The largest entry of FiberTransport's holonomy less the identity; NaN for a layer without torsion."""
    given = trace.layers[layer]
    if given.torsion is None:
        return float("nan")
    metric = given.metric if model.config.metric_compatible else None
    return float(gauge_holonomy(*given.torsion, tokens, metric).error[head])


def _start(g: MetricFunction, x: Tensor, found: Holonomy, vector: str) -> Tensor:
    """The vector to carry, of length 1 in the metric at x."""
    if vector == "next":
        w = found.edges[0](torch.zeros(1, dtype=x.dtype, device=x.device))[1][0]
    else:
        values, vectors = torch.linalg.eigh(g.dense(x))
        w = vectors[:, -1]
        if vector == "turned":
            turned = torch.linalg.eig(found.matrix)
            place = int(turned.eigenvalues.angle().abs().argmax())
            w = (vectors * values.rsqrt()) @ (vectors.mT @ turned.eigenvectors[:, place].real)
    size = g.inner(x, w, w).sqrt()
    return w / torch.where(size > 0, size, 1)
