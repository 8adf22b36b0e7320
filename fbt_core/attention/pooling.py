"""Attention maps made small or made one: max-pooling, the mean over heads, rollout. Torch in, numpy out.

A map is computed for one head at a time, a tile of queries at a time, and thrown away: peak memory is one (L, L) map
plus a tile. Rows are queries i, columns are keys j.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from fbt_core.trace import LayerTrace, Trace

TILE = 512
"""Queries computed at once: the metric terms need TILE x L x r numbers."""


@dataclass(frozen=True)
class Pooled:
    """A map in at most n x n bins. Bin b of an axis holds the tokens ``edges[b] <= t < edges[b + 1]``."""

    values: Float[np.ndarray, "bin column"]  # 0 where masked, NaN where a cell of the bin is not finite
    masked: Bool[np.ndarray, "bin column"]  # no cell of the bin may be attended to
    edges: Float[np.ndarray, " edge"]  # of the rows, in tokens, from 0 to L
    column_edges: Float[np.ndarray, " column_edge"]  # of the columns; as ``edges`` where the map is square

    @property
    def factor(self) -> float:
        """Tokens a bin on average; 1 when nothing was pooled."""
        return float(self.edges[-1]) / (len(self.edges) - 1)


def max_pool(
    cells: Float[Tensor, "row column"] | Float[np.ndarray, "row column"],
    bins: int,
    causal: bool = False,
    magnitude: bool = False,
) -> Pooled:
    """The largest cell of every bin, so that a single hot cell is never lost, with at most ``bins`` bins a side.

    ``causal`` leaves cells j > i out of the maximum; a bin without any other cell is masked. ``magnitude`` keeps the
    signed cell of largest absolute value, for differences. Raises ``ValueError`` for an empty map, fewer than one bin,
    and a causal map that is not square.
    """
    values = cells.detach().float().cpu().numpy() if isinstance(cells, Tensor) else np.asarray(cells, np.float32)
    if values.ndim != 2 or not values.size or bins < 1 or (causal and values.shape[0] != values.shape[1]):
        shape = "(L, L)" if causal else "(rows, columns)"
        raise ValueError(f"got a map of shape {values.shape} and {bins} bins, expected {shape}, not empty, bins >= 1")
    starts = tuple(_starts(length, bins) for length in values.shape)
    allowed = np.tri(len(values), dtype=bool) if causal else np.ones_like(values, dtype=bool)
    high = largest(values, allowed, lambda operation, cells: _reduce(operation, cells, starts), magnitude)
    masked = np.isneginf(high)
    edges = [np.append(first, length).astype(np.float64) for first, length in zip(starts, values.shape, strict=True)]
    return Pooled(np.where(masked, np.float32(0), high), masked, *edges)


def largest(
    cells: Float[np.ndarray, "row column"],
    seen: Bool[np.ndarray, "row column"],
    reduced: Callable[[np.ufunc, np.ndarray], np.ndarray],
    magnitude: bool = False,
) -> Float[np.ndarray, "bin across"]:
    """The largest of the ``seen`` cells of every bin, or the signed one of largest ``magnitude``: -inf where there is
    none, NaN where one is not finite. ``reduced`` applies an operation within the bins."""
    values = np.where(np.isfinite(cells), cells, np.float32(np.nan))
    high = reduced(np.maximum, np.where(seen, values, -np.inf))
    if magnitude:
        low = reduced(np.minimum, np.where(seen, values, np.inf))
        high = np.where(np.isfinite(low) & (-low > high), low, high)
    return high


def row_sums(cells: Float[Tensor, "row column"]) -> tuple[Float[np.ndarray, " row"], Float[np.ndarray, " row"]]:
    """The entropy of every row, nats, and what the row lacks to 1, both at least 0 and computed in float64."""
    exact = cells.detach().cpu().double()
    return torch.special.entr(exact).sum(-1).clamp_min(0).numpy(), (1 - exact.sum(-1)).clamp_min(0).numpy()


def _starts(length: int, bins: int) -> np.ndarray:
    return np.unique(np.arange(min(bins, length)) * length // min(bins, length))


def _reduce(operation: np.ufunc, values: np.ndarray, starts: tuple[np.ndarray, ...]) -> np.ndarray:
    return operation.reduceat(operation.reduceat(values, starts[0], axis=0), starts[1], axis=1)


def head_map(layer: LayerTrace, head: int, score: str, alpha: float | None = None) -> Float[Tensor, "row column"]:
    """The attention of one head under ``score``, in [0, 1], rows summing to 1; tiled over the queries.

    ``alpha`` replaces the model's own in the blended score (a confounded what-if, item 9). Raises ``ValueError`` with
    the reason where the layer has no such attention.
    """
    one = layer.select(head)
    if alpha is not None and one.factors is not None:
        one = replace(one, factors=one.factors.with_alpha(alpha))
    if one.factors is None:
        return one.attention(0, score)
    length = one.factors.q.shape[-2]
    tiles = [one.attention(0, score, slice(start, min(start + TILE, length))) for start in range(0, length, TILE)]
    return torch.cat(tiles).detach()


def head_maps(layer: LayerTrace, score: str, alpha: float | None = None) -> Iterator[Float[Tensor, "row token"]]:
    """The maps of all heads of a layer, one at a time."""
    for head in range(layer.heads):
        yield head_map(layer, head, score, alpha)


def mean_over_heads(layer: LayerTrace, score: str, alpha: float | None = None) -> Float[Tensor, "row token"]:
    """The mean of a layer's maps over its heads, unweighted; rows sum to 1."""
    if missing := layer.unavailable(score):
        raise ValueError(missing)
    total, heads = torch.zeros(()), 0
    for cells in head_maps(layer, score, alpha):
        total, heads = cells + total.to(cells), heads + 1
    return total / heads


def rollout(
    trace: Trace, score: str, layer: int | None = None, alpha: float | None = None
) -> Float[Tensor, "row token"]:
    """Attention rollout up to and including ``layer`` (default the last): A_l ... A_1 A_0 with A = (mean + I) / 2.

    The mean is over heads, the identity stands for the residual connection, rows are normalised (Abnar & Zuidema
    2020, arXiv 2005.00928, section 3). Row i says from which input tokens position i can have got its information,
    if values and feed-forward did nothing: an accounting of paths, not a measurement. A layer without attention moves
    nothing between tokens in it. Raises ``ValueError`` for cross-attention, whose maps cannot be multiplied.
    """
    if trace.rectangular:
        raise ValueError("got cross-attention, expected queries and keys of the same tokens: a rollout multiplies maps")
    last = len(trace.layers) - 1 if layer is None else layer
    if not 0 <= last < len(trace.layers):
        raise ValueError(f"got layer {layer}, expected 0 to {len(trace.layers) - 1}")
    total = torch.eye(trace.length, device=trace.ids.device)
    for block in trace.layers[: last + 1]:
        if block.unavailable(score):
            continue
        mean = mean_over_heads(block, score, alpha)
        mixed = (mean + torch.eye(len(mean)).to(mean)) / 2
        total = (mixed / mixed.sum(-1, keepdim=True)) @ total.to(mixed)
    return total
