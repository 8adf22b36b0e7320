"""The metric on the plane through three tokens: a surface that can be drawn, with a curvature of its own.

In a slice x + E a that does not hold all three tokens, the plane goes through the first one, and the others stand where
their coordinates in the slice are: what of them lies outside it stays that of the first token.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor
from torch.func import vmap

from fbt_core.geometry.curvature import EXACT_DIM, TENSOR_DIM, scalar, sectional
from fbt_core.geometry.function import MetricFunction
from fbt_core.geometry.planes import in_chunks, scalar_sampled

CELL_NUMBERS = 64
"""Times d^3, about what the scalar curvature needs at one place."""

FLAT = 1e-9
"""Of the longest side of the triangle: tokens nearer to one line than this span no plane."""


@dataclass(frozen=True)
class Plane:
    """The points origin + E (axes p), p in R^2; the first token at 0 and the second on the first axis.

    Lengths in it are Euclidean, in units of the slice's coordinates. ``inside`` is the share of the squared length of
    the tokens' differences that lies in the slice: 1 where the plane holds all three tokens as they are.
    """

    origin: Float[Tensor, " space"]
    axes: Float[Tensor, "dim 2"]  # orthonormal
    inclusion: Tensor | None  # E (D, d)
    tokens: Float[Tensor, "3 2"]
    inside: float

    def point(self, p: Float[Tensor, " two"]) -> Float[Tensor, " space"]:
        """Where p stands in the whole space."""
        a = self.axes @ p
        return self.origin + (a if self.inclusion is None else self.inclusion @ a)


def plane_through(g: MetricFunction, points: Float[Tensor, "3 space"]) -> Plane:
    """The plane of three points in the slice of the first.

    Raises ``ValueError`` where two stand at one place of the slice, all three on a line, or one is not finite.
    """
    moved = points[1:] - points[:1]
    coordinates = moved if g.inclusion is None else moved @ torch.linalg.pinv(g.inclusion).mT
    first, second = coordinates
    sides = torch.stack([first.norm(), second.norm(), (first - second).norm()])
    if not sides.isfinite().all():
        raise ValueError("the residual of one of the three tokens is not finite")
    if sides.min() <= FLAT * sides.max():
        raise ValueError("two of the three tokens stand at one place of this slice: choose three places")
    along = first / first.norm()
    across = second - (second @ along) * along
    if across.norm() <= FLAT * sides.max():
        raise ValueError("the three tokens stand on one line of this slice: they span no plane")
    axes = torch.stack([along, across / across.norm()], -1)
    tokens = torch.cat([axes.new_zeros(1, 2), coordinates @ axes])
    held = coordinates if g.inclusion is None else coordinates @ g.inclusion.mT
    return Plane(points[0], axes, g.inclusion, tokens, float((held.square().sum() / moved.square().sum()).clamp(0, 1)))


def surface(g: MetricFunction, plane: Plane) -> MetricFunction:
    """The metric that the plane has from g, in two dimensions: h_ij = g(axes_i, axes_j)."""
    axes = plane.axes
    if g.factor is not None:
        factor = g.factor
        return MetricFunction.low_rank(lambda p: axes.mT @ factor(plane.point(p)), 2, name=g.name)
    return MetricFunction(2, lambda p, a, b: g.inner(plane.point(p), axes @ a, axes @ b), name=g.name)


def surface_metrics(g: MetricFunction, plane: Plane, p: Float[Tensor, "place 2"]) -> Float[Tensor, "place 2 2"]:
    """h at places of the plane: what the ellipses are drawn of."""
    return vmap(surface(g, plane).dense)(p)


def _scalar(g: MetricFunction, plane: Plane, p: Tensor, planes: int, seed: int) -> tuple[Tensor, Tensor]:
    points = vmap(plane.point)(p)
    if g.dim <= (TENSOR_DIM if g.factor is None else EXACT_DIM):
        return _exact(in_chunks(lambda x: scalar(g, x), CELL_NUMBERS * g.dim**3, points))
    return scalar_sampled(g, points, planes, seed)


def _gaussian(g: MetricFunction, plane: Plane, p: Tensor, planes: int, seed: int) -> tuple[Tensor, Tensor]:
    h, (u, v) = surface(g, plane), torch.eye(2, dtype=p.dtype, device=p.device)
    return _exact(vmap(lambda place: sectional(h, place, u, v))(p))


def _ambient(g: MetricFunction, plane: Plane, p: Tensor, planes: int, seed: int) -> tuple[Tensor, Tensor]:
    u, v = plane.axes.mT
    return _exact(vmap(lambda place: sectional(g, plane.point(place), u, v))(p))


def _volume(g: MetricFunction, plane: Plane, p: Tensor, planes: int, seed: int) -> tuple[Tensor, Tensor]:
    return _exact(vmap(lambda place: g.logdet(plane.point(place)) / 2)(p))


def _exact(values: Tensor) -> tuple[Tensor, Tensor]:
    return values, torch.zeros_like(values)


@dataclass(frozen=True)
class Quantity:
    """One thing to draw over a plane. ``values(g, plane, p, planes, seed)`` gives it and its standard error."""

    title: str
    symbol: str  # LaTeX
    unit: str
    meaning: str  # a sentence for people
    values: Callable[[MetricFunction, Plane, Tensor, int, int], tuple[Tensor, Tensor]]
    signed: bool = True  # drawn diverging about 0
    sampled: bool = False


CURVED = "1 / length²"

QUANTITIES: dict[str, Quantity] = {
    "gaussian": Quantity(
        "Gaussian curvature of the slice", "K_h", CURVED,
        "The curvature of the drawn surface itself, with the metric that it has from the whole.", _gaussian,
    ),
    "sectional": Quantity(
        "Sectional curvature of the slice's plane", r"K(e_1, e_2)", CURVED,
        "The curvature of the whole metric in the plane's two directions: the surface's own, less how it bends inside.",
        _ambient,
    ),
    "scalar": Quantity(
        "Scalar curvature", "S", CURVED, "$d (d - 1)$ times the mean sectional curvature over all planes.", _scalar,
        sampled=True,
    ),
    "volume": Quantity(
        "Log volume element", r"\tfrac12 \ln \det g", "nats", "How much the metric swells volume.", _volume,
        signed=False,
    ),
}  # fmt: skip
"""What can be drawn over a plane."""


def quantity_on(
    g: MetricFunction, plane: Plane, name: str, p: Float[Tensor, "place 2"], planes: int = 64, seed: int = 0
) -> tuple[Float[Tensor, " place"], Float[Tensor, " place"]]:
    """A row of ``QUANTITIES`` at places of the plane, and its standard error (0 where it is exact)."""
    if name not in QUANTITIES:
        raise ValueError(f"got {name!r}, expected one of {', '.join(QUANTITIES)}")
    return QUANTITIES[name].values(g, plane, p, planes, seed)


def lattice(plane: Plane, cells: int, margin: float = 0.3) -> tuple[Float[Tensor, " column"], Float[Tensor, " row"]]:
    """Coordinates of a grid of square cells over the triangle of tokens and a margin: at most ``cells`` a side.

    Both spans are at least half the longer one, so that a narrow triangle is not drawn as a line.
    """
    low, high = plane.tokens.min(0).values, plane.tokens.max(0).values
    span, middle = high - low, (low + high) / 2
    span = torch.maximum(span, span.max() / 2) + 2 * margin * span.max()
    counts = (span / span.max() * cells).round().long().clamp_min(2)
    axis = partial(torch.linspace, dtype=plane.tokens.dtype, device=plane.tokens.device)
    return tuple(
        axis(float(middle[i] - span[i] / 2), float(middle[i] + span[i] / 2), int(counts[i])) for i in range(2)
    )  # fmt: skip
