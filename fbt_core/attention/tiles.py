"""Maps too large to be held whole: any rows of one exactly, two of them max-pooled together, an exact part of both.

Nothing here forms an L x L matrix: a head's rows come tile by tile from its factors, and a tile is thrown away. Cost
O(L^2 d) time, O(TILE x L) memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Float

from fbt_core.attention.matching import tempered
from fbt_core.attention.pooling import TILE, largest, row_sums
from fbt_core.attention.views import at_entropy
from fbt_core.trace import LayerTrace, Trace

Rows = Callable[[slice], Float[np.ndarray, "row column"]]
"""The rows of a map for some queries, float32."""

Hidden = Callable[[slice], np.ndarray | None]
"""Where a mask lets no attention be, for some queries; None where there is no mask."""


@dataclass(frozen=True)
class PooledPair:
    """Two maps and right minus left in square bins of ``factor`` tokens a side; the last bin of an axis may be short.

    Cells are the largest of their bin, of the difference the one of largest magnitude, over cells that may be attended
    to; 0 where there is none, NaN where one is not finite. ``entropy`` (nats) and ``lost`` are exact and of every row.
    """

    left: Float[np.ndarray, "bin across"]
    right: Float[np.ndarray, "bin across"]
    difference: Float[np.ndarray, "bin across"]
    factor: int
    entropy: tuple[Float[np.ndarray, " row"], Float[np.ndarray, " row"]]
    lost: tuple[Float[np.ndarray, " row"], Float[np.ndarray, " row"]]
    not_finite: int  # cells of the two maps that may be attended to and are NaN or infinite
    hidden: Bool[np.ndarray, "bin across"] | None = None  # where a mask hides a whole bin, beside the future


def multipliers(
    trace: Trace, *, layer: int, head: int, view: str, score: str, match: str, alpha: float | None = None
) -> Float[np.ndarray, " head"]:
    """By what each head's logits of ``score`` are multiplied to have the mean row entropy of ``match``; NaN where none
    does. One number for ``view`` "head", else one a head. Raises ``ValueError`` where that cannot be done."""
    block = trace.layers[layer]
    return at_entropy(block.select(head) if view == "head" else block, score, match, alpha)[1].cpu().numpy()


def rows_of(
    trace: Trace, *, score: str, layer: int, head: int = 0, view: str = "head", alpha: float | None = None,
    multiplied: Float[np.ndarray, " head"] | None = None,
) -> Rows:  # fmt: skip
    """The rows of one head's map, or of the mean over heads.

    Raises ``ValueError`` for another view, a rollout too, whose rows take all of it, and with the reason where the
    layer has no such attention.
    """
    if view not in ("head", "mean"):
        raise ValueError(f"got view {view!r}, expected head or mean")
    block = trace.layers[layer]
    if missing := block.unavailable(score):
        raise ValueError(missing)
    block = block.select(head) if view == "head" else block
    if block.factors is not None:
        factors = block.factors if alpha is None else block.factors.with_alpha(alpha)
        if multiplied is not None:
            factors = tempered(factors, score, torch.from_numpy(multiplied).nan_to_num(1.0).to(factors.q.device))
        block = replace(block, factors=factors)
    return lambda rows: _mean_rows(block, score, rows)


def _mean_rows(block: LayerTrace, score: str, rows: slice) -> Float[np.ndarray, "row column"]:
    """The mean over the block's heads, one head in memory at a time."""
    with torch.no_grad():
        total = block.attention(0, score, rows).clone()
        for head in range(1, block.heads):
            total += block.attention(head, score, rows)
        return (total / block.heads).detach().float().cpu().numpy()


def pool_pair(
    left: Rows, right: Rows, shape: tuple[int, int], factor: int, causal: bool = False,
    hidden: Hidden = lambda rows: None,
) -> PooledPair:  # fmt: skip
    """Two maps of ``shape`` pooled in one walk over their rows; ``causal`` leaves j > i out.

    Raises ``ValueError`` for an empty map, a factor below 1, and a causal map that is not square.
    """
    length, keys = shape
    if min(length, keys, factor) < 1 or (causal and length != keys):
        raise ValueError(f"got maps of shape {shape} and a factor of {factor}, expected (L, L) if causal, both >= 1")
    bins, told = [], []
    across = -(-keys // factor)
    for rows in _strips(0, length, factor):
        a, b, seen = _read(left, right, rows, causal, hidden)
        if causal:  # what lies right of these rows' diagonal needs no look
            a, b, seen = (cells[:, : rows.stop] for cells in (a, b, seen))
        bins.append([_widened(cells, across) for cells in _bins(a, b, seen, factor)])
        sums = [row_sums(torch.from_numpy(cells)) for cells in (a, b)]
        told.append([sum_ for both in zip(*sums, strict=True) for sum_ in both])  # two entropies, two lost shares
        told[-1].append(np.array([np.count_nonzero(~np.isfinite(cells[seen])) for cells in (a, b)]))
    cells = [np.concatenate(parts) for parts in zip(*bins, strict=True)]
    *rows_told, broken = (np.concatenate(parts) for parts in zip(*told, strict=True))
    future = np.triu(np.ones_like(cells[3]), 1) if causal else np.zeros_like(cells[3])
    masked = cells[3] & ~future
    return PooledPair(
        *cells[:3], factor, tuple(rows_told[:2]), tuple(rows_told[2:]), int(broken.sum()),
        masked if masked.any() else None,
    )  # fmt: skip


def crop_pair(
    left: Rows, right: Rows, rows: slice, columns: slice, factor: int, causal: bool = False,
    hidden: Hidden = lambda rows: None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:  # fmt: skip
    """A part of two maps and of their difference in bins of ``factor``, and where no cell of a bin may be attended to.

    The bins begin at the part's own corner; factor 1 gives the exact cells.
    """
    strips = []
    for some in _strips(rows.start, rows.stop, factor):
        a, b, seen = _read(left, right, some, causal, hidden)
        strips.append(_bins(a[:, columns], b[:, columns], seen[:, columns], factor))
    return tuple(np.concatenate(parts) for parts in zip(*strips, strict=True))


def _strips(start: int, stop: int, factor: int) -> list[slice]:
    """Tiles of rows, each of whole bins but for the last."""
    step = max(factor, TILE // factor * factor)
    return [slice(first, min(first + step, stop)) for first in range(start, stop, step)]


def _read(
    left: Rows, right: Rows, rows: slice, causal: bool, hidden: Hidden
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Some rows of both maps, and which of their cells may be attended to."""
    a = left(rows)
    b = a if right is left else right(rows)
    seen = np.tri(len(a), a.shape[1], rows.start, dtype=bool) if causal else np.ones(a.shape, dtype=bool)
    masked = hidden(rows)
    return a, b, seen if masked is None else seen & ~masked


def _bins(
    a: np.ndarray, b: np.ndarray, seen: np.ndarray, factor: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The bins of two maps and of their difference, and which bins hold no cell that may be attended to."""
    pooled = [pool(cells, seen, factor) for cells in (a, b)]
    return *pooled, pool(b - a, seen, factor, magnitude=True), ~_reduced(np.logical_or, seen, factor)


def _widened(bins: np.ndarray, across: int) -> np.ndarray:
    """With columns of zeros up to ``across``: they are the future."""
    return np.pad(bins, ((0, 0), (0, across - bins.shape[1])))


def pool(
    cells: Float[np.ndarray, "row column"], seen: Bool[np.ndarray, "row column"], factor: int, magnitude: bool = False
) -> Float[np.ndarray, "bin across"]:
    """Bins of ``factor`` by ``factor`` cells: the largest, or the signed one of largest ``magnitude``, over ``seen``
    cells; 0 where none is, NaN where one is not finite."""
    high = largest(cells, seen, lambda operation, values: _reduced(operation, values, factor), magnitude)
    return np.where(np.isneginf(high), 0, high).astype(np.float32)


def _reduced(operation: np.ufunc, values: np.ndarray, factor: int) -> np.ndarray:
    """``operation`` over the cells of each bin. Columns by strides: numpy reduces along short last axes slowly."""
    if factor == 1:
        return values
    high = operation.reduceat(values, np.arange(0, len(values), factor), axis=0)
    result = high[:, ::factor].copy()
    for shift in range(1, factor):
        shifted = high[:, shift::factor]
        part = result[:, : shifted.shape[1]]
        operation(part, shifted, out=part)
    return result
