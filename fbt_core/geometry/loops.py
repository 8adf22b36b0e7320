"""Holonomy: what a loop of tokens does to a vector that is carried around it.

Levi-Civita transport turns it, by the curvature that the loop encloses. FiberTransport (item 7) does not, whatever its
matrices: C_i^T C_j depends on each token by itself, and around a loop the rotations cancel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.func import vmap

from fbt_core.geometry.boundary import connect_all
from fbt_core.geometry.connection import christoffel
from fbt_core.geometry.function import MetricFunction
from fbt_core.geometry.geodesic import SAMPLES, TOLERANCE, Curve, flow
from fbt_core.geometry.graph_paths import in_slice
from fbt_core.geometry.levi_civita import Transported, segment, transport
from fbt_core.geometry.metric import LowRankMetric
from fbt_core.geometry.transport import cayley

ALONG = ("geodesics", "segments")
"""What joins the tokens of a loop."""


@dataclass(frozen=True, eq=False)
class Holonomy:
    """The map of a loop on the vectors at its first token, in a g-orthonormal frame: a rotation.

    ``matrix`` is g^{1/2} M g^{-1/2} with g the metric there and M the map itself, ``carried``.
    """

    matrix: Float[Tensor, "dim dim"]
    carried: Float[Tensor, "dim dim"]  # M, of coordinates (columns)
    angles: Float[Tensor, " half"]  # of its floor(d/2) planes, radians in [0, pi], descending; no plane has a sign
    error: float  # the largest entry of matrix^T matrix - I
    edges: tuple[Curve, ...]  # leg by leg, for ``carry``
    lengths: tuple[float, ...]  # of the legs that are geodesics; empty for segments
    why: str = ""  # what went wrong on the way; empty where nothing did


def holonomy(
    g: MetricFunction, loop: Float[Tensor, "corner space"], along: str = "geodesics", tolerance: float = TOLERANCE
) -> Holonomy:
    """Carry a frame around the loop, from the first corner through all others and back.

    Where the slice is not the whole space, all corners are taken into the slice of the first. Raises ``ValueError``
    for less than two corners, and for what is not in ``ALONG``. Source: docs/mathematics.md, "Geodesics".
    """
    if along not in ALONG or len(loop) < 2:
        raise ValueError(f"got {len(loop)} corners along {along!r}, expected at least 2 along {' or '.join(ALONG)}")
    loop = in_slice(g, loop.double(), loop[0].double())
    following = loop.roll(-1, 0)
    lengths, why = (), ""
    if along == "geodesics":
        legs = connect_all(g, loop, following, samples=2)
        edges, lengths = tuple(leg.at for leg in legs), tuple(leg.length for leg in legs)
        why = "; ".join(f"leg {place + 1}: {leg.why}" for place, leg in enumerate(legs) if leg.why)
    else:
        edges = tuple(segment(g, x, y) for x, y in zip(loop, following, strict=True))
    frames, stopped = _propagate(g, edges, loop, tolerance)
    rows = torch.linalg.multi_dot(list(frames)) if len(frames) > 1 else frames[0]
    root, inverse = _roots(g.dense(loop[0]))
    matrix = root @ rows.mT @ inverse
    error = float((matrix.mT @ matrix - torch.eye(g.dim).to(matrix)).abs().max())
    return Holonomy(
        matrix, rows.mT, rotation_angles(matrix), error, edges, lengths, "; ".join(filter(None, [why, stopped]))
    )


def _propagate(
    g: MetricFunction, edges: Sequence[Curve], loop: Tensor, tolerance: float
) -> tuple[Float[Tensor, "edge dim dim"], str]:
    """Row a of an edge's matrix is where it takes the coordinate vector e_a. All edges go as one system."""
    carry_one = vmap(christoffel, (None, None, None, 0))

    def field(t: float, W: Tensor) -> Tensor:
        now = torch.tensor([t], dtype=loop.dtype, device=loop.device)
        places = [edge(now) for edge in edges]
        points, velocities = (torch.cat(parts) for parts in zip(*places, strict=True))
        return -vmap(lambda x, v, rows: carry_one(g, x, v, rows))(points, velocities, W)

    start = torch.eye(g.dim).to(loop).expand(len(edges), -1, -1)
    found = flow(field, start.contiguous(), tolerance)
    return found.at(torch.ones(1, dtype=loop.dtype, device=loop.device))[0], found.why


def carry(g: MetricFunction, edges: Sequence[Curve], w: Float[Tensor, " dim"], samples: int = SAMPLES) -> Transported:
    """One vector leg by leg, as a picture wants it; each corner appears twice, as an end and as a beginning."""
    parts: list[Transported] = []
    for edge in edges:
        parts.append(transport(g, edge, w if not parts else parts[-1].vectors[-1, 0], samples=samples))
    return Transported(
        torch.cat([part.points for part in parts]), torch.cat([part.vectors for part in parts]),
        max(part.error for part in parts), sum(part.steps for part in parts),
        "; ".join(part.why for part in parts if part.why),
    )  # fmt: skip


def rotation_angles(matrix: Float[Tensor, "*batch dim dim"]) -> Float[Tensor, "*batch half"]:
    """The angles of a rotation's planes, in [0, pi], descending; NaN for a matrix that is not finite.

    Eigenvalues come in pairs e^{+-i angle}; in odd dimension one more is 1.
    """
    bad = ~matrix.isfinite().all(-1).all(-1)
    eye = torch.eye(matrix.shape[-1]).to(matrix)
    values = torch.linalg.eigvals(torch.where(bad[..., None, None], eye, matrix))
    angles = values.angle().abs().sort(-1, descending=True).values[..., : matrix.shape[-1] // 2 * 2 : 2]
    return torch.where(bad[..., None], torch.nan, angles)


def _roots(g: Float[Tensor, "dim dim"]) -> tuple[Tensor, Tensor]:
    """g^{1/2} and g^{-1/2}, symmetric."""
    values, vectors = torch.linalg.eigh(g)
    return (vectors * values.sqrt()) @ vectors.mT, (vectors * values.rsqrt()) @ vectors.mT


@dataclass(frozen=True)
class GaugeHolonomy:
    """FiberTransport around a loop of tokens, a head at a time."""

    legs: Float[Tensor, "leg head dim dim"]  # P_{j -> i} of each leg j -> i
    matrix: Float[Tensor, "head dim dim"]  # their product: the identity, to rounding
    error: Float[Tensor, " head"]  # its largest entry less the identity's


def gauge_holonomy(
    left: Float[Tensor, "head token dim torsion"], right: Float[Tensor, "head token dim torsion"],
    loop: Sequence[int], metric: LowRankMetric | None = None,
) -> GaugeHolonomy:  # fmt: skip
    """The product of C_i^T C_j around tokens loop[0], loop[1], ..., loop[0], multiplied out leg by leg (item 7).

    With ``metric`` the compatible option g_i^{-1/2} C_i^T C_j g_j^{1/2}. Float64, whatever the factors are.
    """
    tokens = torch.tensor(list(loop), device=left.device)
    dim = left.shape[-2]

    def each_vector(factor: Tensor) -> Tensor:  # one copy for each of the basis vectors that are sent through
        return factor[:, tokens, None].double().expand(-1, -1, dim, -1, -1)

    left, right = each_vector(left), each_vector(right)
    g = LowRankMetric(left[..., :0] if metric is None else each_vector(metric.U))
    basis = torch.eye(dim).to(left)
    vectors = basis.expand(*left.shape[:2], -1, -1)
    into = cayley(left, right, g.root(vectors)).mT
    out = g.inverse_root(cayley(left, right, vectors, inverse=True)).mT
    legs = out.roll(-1, 1) @ into
    matrix = basis.expand(len(left), -1, -1)
    for leg in legs.unbind(1):
        matrix = leg @ matrix
    return GaugeHolonomy(legs.transpose(0, 1), matrix, (matrix - basis).abs().amax((-2, -1)))
