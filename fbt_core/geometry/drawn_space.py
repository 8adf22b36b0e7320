"""Where the ellipsoids stand: the spaces that have a metric, and the three directions of them that are drawn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from fbt_core.trace import LayerTrace, Trace

SAMPLE = 512
"""Tokens whose nearest neighbour is looked for when the glyphs' scale is chosen: all tokens would cost O(token^2)."""


@dataclass(frozen=True)
class Space:
    """A vector space in which both the tokens' positions and their metrics live.

    ``positions`` gives (token, width) and ``blocks`` the U of every block of the metric, (block, token, d, r) with
    width = block d. The head is ignored where ``per_head`` is false.
    """

    name: str
    title: str
    per_head: bool
    positions: Callable[[LayerTrace, int], Tensor]
    blocks: Callable[[LayerTrace, int], Tensor]

    def has(self, layer: LayerTrace, head: int) -> bool:
        """Whether a layer has such vectors: one without attention, or of fewer heads, may not."""
        return not self.per_head or (layer.factors is not None and head < layer.heads)


def _of_residual(layer: LayerTrace, head: int) -> Float[Tensor, "block token dim rank"]:
    """The blocks of G; of rank 0 where there is no metric, whatever the heads' widths add up to."""
    if layer.residual_U is None and (layer.factors is None or layer.metric.rank == 0):
        return layer.residual_in[None, ..., None][..., :0]
    return layer.residual_blocks


SPACES: dict[str, Space] = {
    space.name: space
    for space in (
        Space("keys", "a head's keys, metric g", True,
              lambda layer, head: layer.given.k[head], lambda layer, head: layer.given.U[head : head + 1]),
        Space("queries", "a head's queries, metric g", True,
              lambda layer, head: layer.given.q[head], lambda layer, head: layer.given.U[head : head + 1]),
        Space("values", "a head's values, metric g", True,
              lambda layer, head: layer.given.v[head], lambda layer, head: layer.given.U[head : head + 1]),
        # The residual that enters the block: that is what MetricNet reads, so glyph and position belong together.
        Space("residual", "the residual stream entering the layer, metric G", False,
              lambda layer, head: layer.residual_in, _of_residual),
    )
}  # fmt: skip
"""To add a space: one row."""


@dataclass(frozen=True)
class Basis:
    """Three orthonormal directions: the rows of P. Where the width is below 3 the last rows are zero."""

    directions: Float[Tensor, "3 width"]  # float64
    name: str
    names: tuple[str, str, str]  # of the axes


def centred(positions: Float[Tensor, "token width"]) -> Float[Tensor, "token width"]:
    """Positions relative to the mean of the tokens that are finite, in float64 on the CPU."""
    x = positions.detach().to("cpu", torch.float64)
    finite = x.isfinite().all(1)
    return x - x[finite].mean(0) if finite.any() else x


def shared_pca(trace: Trace, space: str, head: int = 0) -> Basis:
    """The three principal directions of the tokens' positions, pooled over all layers.

    Each layer is centred on its own mean token, so that the drift between layers takes no direction. The signs are
    fixed: the largest component of a direction is positive. Right for any number of tokens, one included.
    """
    chosen = SPACES[space]
    covariance = sum(
        _scatter_matrix(chosen.positions(layer, head)) for layer in trace.layers if chosen.has(layer, head)
    )
    assert isinstance(covariance, Tensor)
    return Basis(_top_rows(covariance), "PCA of the tokens, shared by all layers", ("PC 1", "PC 2", "PC 3"))


def principal_metric_directions(layer: LayerTrace, space: str, head: int = 0, fill: Basis | None = None) -> Basis:
    """The top eigenvectors of mean_t A_t of one layer: the directions in which its metrics stretch most.

    Where the mean has a rank below 3, as in a model without a metric, directions of ``fill`` complete the three.
    """
    blocks = SPACES[space].blocks(layer, head).detach().to("cpu", torch.float64)
    count, tokens, dim, _ = blocks.shape
    finite = blocks[:, blocks.isfinite().all((0, 2, 3))]
    mean = torch.einsum("btdr,bter->bde", finite, finite) / max(tokens, 1)
    values, vectors = torch.linalg.eigh(mean)  # (block, d), (block, d, d), ascending
    order = values.flatten().argsort(descending=True)[:3]
    order = order[values.flatten()[order] > 1e-12 * max(1.0, float(values.abs().max()))]
    rows = vectors.new_zeros(len(order), count, dim)
    block = order // dim
    rows[torch.arange(len(order)), block] = vectors.mT.reshape(-1, dim)[order]
    candidates = [rows.flatten(1)] + ([fill.directions] if fill is not None else [])
    directions = _first_three_independent(torch.cat([*candidates, torch.eye(count * dim, dtype=torch.float64)]))
    return Basis(directions, "principal directions of mean A of this layer", ("A 1", "A 2", "A 3"))


BASES = ("shared PCA", "principal metric directions")
"""The choices of ``basis``."""


def basis(trace: Trace, base: str, space: str, layer: int, head: int = 0) -> Basis:
    """The basis named ``base``, one of ``BASES``; ``ValueError`` for another name."""
    if base not in BASES:
        raise ValueError(f"got base {base!r}, expected one of {', '.join(BASES)}")
    pca = shared_pca(trace, space, head)
    return pca if base == "shared PCA" else principal_metric_directions(trace.layers[layer], space, head, pca)


@dataclass(frozen=True)
class Stage:
    """The glyphs' scale and the room for everything: shared by all layers, or by the two sides of a comparison."""

    scale: float  # a unit ball of g = I is drawn with this radius, in units of the positions
    bounds: tuple[tuple[float, ...], tuple[float, ...]]  # least and largest coordinates of any centre
    longest: float = 1.0  # no semi-axis is longer, before the scale
    alike: bool = True  # the scale is that of all layers, so that they may be compared by eye

    def enlarged(self, factor: float) -> Stage:
        """The same stage with larger glyphs."""
        return replace(self, scale=self.scale * factor)

    def framed(self, other: Stage) -> Stage:
        """This scale in the room of another stage."""
        return replace(self, bounds=other.bounds, longest=other.longest)

    def joined(self, other: Stage) -> Stage:
        """A stage for both, of the smaller scale: to draw two models alike."""
        low = tuple(map(min, self.bounds[0], other.bounds[0]))
        high = tuple(map(max, self.bounds[1], other.bounds[1]))
        return Stage(
            min(self.scale, other.scale), (low, high), max(self.longest, other.longest), self.alike and other.alike
        )


def stage(
    layers: tuple[LayerTrace, ...], space: str, directions: Basis, head: int = 0, dual: bool = False, alike: bool = True
) -> Stage:
    """The stage of some layers along ``directions``; ``alike`` says that they are all layers there are.

    The scale is 3/4 of the median distance of a token to its nearest neighbour as drawn: unit spheres overlap a little,
    and most balls of g, which are smaller, do not. The dual glyph's axes exceed 1, so there it is divided by the median
    of a bound of the longest, sqrt(1 + tr K). Before that it is kept within 4 % and 20 % of the typical distance from
    the mean token, so that glyphs stay visible in a crowd and a few tokens do not fill the view; and 1 where all tokens
    coincide.
    """
    neighbours, radii, strengths, extremes = [], [], [], [torch.zeros(1, 3, dtype=torch.float64)]
    for layer in layers:
        if not SPACES[space].has(layer, head):
            continue
        y = centred(SPACES[space].positions(layer, head)) @ directions.directions.mT
        y = y[y.isfinite().all(1)]
        neighbours.append(_nearest(y))
        radii.append(float(y.norm(dim=1).quantile(0.9)) if len(y) else float("nan"))
        blocks = SPACES[space].blocks(layer, head).detach().to("cpu", torch.float64)
        strengths.append(blocks.square().sum((-2, -1)).amax(0))
        extremes += [y.amin(0, keepdim=True), y.amax(0, keepdim=True)] if len(y) else []
    ends = torch.cat(extremes)
    scale = _scale(_median(neighbours), _median(radii))
    strength = torch.cat(strengths).nan_to_num(0.0, 0.0, 0.0)
    if dual:
        scale /= float((1 + strength).sqrt().quantile(0.5))
    longest = float((1 + strength.max()).sqrt()) if dual else 1.0
    return Stage(scale, (tuple(ends.amin(0).tolist()), tuple(ends.amax(0).tolist())), longest, alike)


def _scale(neighbour: float, radius: float) -> float:
    """3/4 of the nearest distance, within 4 % and 20 % of the radius; NaN where there are none."""
    if not radius > 0:
        return 1.0
    wanted = 0.75 * neighbour if neighbour > 0 else 0.0
    return min(max(wanted, 0.04 * radius), 0.2 * radius)


def _median(values: list[float]) -> float:
    """Of the values that are numbers; NaN where there is none."""
    return float(torch.tensor(values, dtype=torch.float64).nanquantile(0.5))


def _scatter_matrix(positions: Tensor) -> Float[Tensor, "width width"]:
    """Sum of x x^T over the finite tokens."""
    x = centred(positions)
    x = x[x.isfinite().all(1)]
    return x.mT @ x


def _top_rows(symmetric: Float[Tensor, "width width"]) -> Float[Tensor, "3 width"]:
    """The top three eigenvectors as rows of fixed sign, padded by zero rows when the width is below 3."""
    vectors = torch.linalg.eigh(symmetric).eigenvectors.flip(-1)[:, :3].mT
    return _padded(_fixed_sign(vectors))


def _first_three_independent(candidates: Float[Tensor, "row width"]) -> Float[Tensor, "3 width"]:
    """Gram-Schmidt, twice for accuracy, through the rows until three are found or none is left."""
    chosen: list[Tensor] = []
    for row in candidates:
        for _ in range(2):
            for other in chosen:
                row = row - (row @ other) * other
        if row.norm() > 1e-6:
            chosen.append(row / row.norm())
        if len(chosen) == 3:
            break
    return _padded(_fixed_sign(torch.stack(chosen)))


def _fixed_sign(rows: Tensor) -> Tensor:
    """Each row with its largest component positive: an eigenvector has no sign of its own."""
    peak = rows.gather(1, rows.abs().argmax(1, keepdim=True))
    return torch.where(peak < 0, -rows, rows)


def _padded(rows: Tensor) -> Float[Tensor, "3 width"]:
    """Zero rows below, up to three: such an axis is drawn flat, with every metric 1 along it."""
    return torch.nn.functional.pad(rows, (0, 0, 0, 3 - rows.shape[0]))


def _nearest(y: Float[Tensor, "token 3"]) -> float:
    """Median distance to the nearest other token, over an even sample; NaN below two tokens."""
    if len(y) < 2:
        return float("nan")
    index = torch.linspace(0, len(y) - 1, min(len(y), SAMPLE)).round().long()
    distance = torch.cdist(y[index], y)
    distance[torch.arange(len(index)), index] = float("inf")
    return float(distance.amin(1).quantile(0.5))
