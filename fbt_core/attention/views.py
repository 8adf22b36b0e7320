"""Attention as a page shows it: one map, all heads at once, the terms of the score. Every function takes a trace and
plain options, and returns numpy, so that its result can be cached under them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from fbt_core.attention.decompose import TERMS, score_terms
from fbt_core.attention.matching import matched
from fbt_core.attention.pooling import head_map, max_pool, mean_over_heads, rollout, row_sums
from fbt_core.attention.scores import allowed
from fbt_core.trace import LayerTrace, Trace

VIEWS = {"head": "one head", "mean": "mean over heads", "rollout": "rollout up to this layer"}
"""What one map may show."""


@dataclass(frozen=True)
class ShownMap:
    """A map and what its rows are like.

    ``multipliers`` are the least and the largest by which heads' logits were multiplied to match another score's mean
    row entropy; (1, 1) where nothing was matched, NaN where no temperature reaches it and the head stands as it was.
    """

    cells: Float[np.ndarray, "row column"]  # float32, rows sum to 1, or to less where a sink takes a part
    entropy: Float[np.ndarray, " row"]  # nats, computed in float64
    lost: Float[np.ndarray, " row"]  # what the rows' sums lack to 1, in [0, 1]
    hidden: Bool[np.ndarray, "row column"] | None = None  # where a mask hides more than the future
    multipliers: tuple[float, float] = (1.0, 1.0)


def one_map(
    trace: Trace, *, score: str, layer: int, head: int = 0, view: str = "head", alpha: float | None = None,
    match: str | None = None,
) -> ShownMap:  # fmt: skip
    """The map of one head, the mean of a layer, or the rollout up to it. Raises ``ValueError`` for another view.

    ``match`` names a score whose mean row entropy each head is brought to by its temperature; not in a rollout.
    """
    if view not in VIEWS or (view == "rollout" and match is not None):
        raise ValueError(f"got view {view!r}, expected one of {', '.join(VIEWS)}; no entropies matched in a rollout")
    block, multipliers, own = trace.layers[layer], (1.0, 1.0), head
    if match is not None:
        block, found = at_entropy(block.select(head) if view == "head" else block, score, match, alpha)
        multipliers, head = (float(found.min()), float(found.max())), 0
    if view == "rollout":
        cells = rollout(trace, score, layer, alpha)
    elif view == "mean":
        cells = mean_over_heads(block, score, alpha)
    else:
        cells = head_map(block, head, score, alpha)
    hidden = hidden_cells(trace, layer, 0 if view != "head" else own) if view != "rollout" else None
    return ShownMap(_to_numpy(cells), *row_sums(cells), hidden, multipliers)


def hidden_cells(trace: Trace, layer: int, head: int = 0) -> Bool[np.ndarray, "row column"] | None:
    """Where a layer's mask lets no attention be, such as outside a window; None where it hides the future at most."""
    hidden = hidden_rows(trace, layer, head)
    if hidden is None:
        return None
    future = np.triu(np.ones_like(hidden), 1) if is_causal(trace, layer) else np.zeros_like(hidden)
    return hidden if (hidden & ~future).any() else None


def hidden_rows(
    trace: Trace, layer: int, head: int, rows: slice | None = None
) -> Bool[np.ndarray, "row column"] | None:
    """Where the layer's mask lets no attention be, for some queries (default all); None without a mask."""
    factors = trace.layers[layer].factors
    if factors is None or factors.mask is None:
        return None
    return ~allowed(factors.select(head), rows).cpu().numpy()


def at_entropy(
    block: LayerTrace, score: str, match: str, alpha: float | None = None
) -> tuple[LayerTrace, Float[Tensor, " head"]]:
    """The layer with each head's temperature such that ``score`` has the mean row entropy of ``match``, and by what
    the logits were multiplied. Raises ``ValueError`` with the reason where that cannot be done."""
    factors = block.given if alpha is None else block.given.with_alpha(alpha)
    found, multipliers = matched(factors, score, match)
    return replace(block, factors=found), multipliers


def unmatched(block: LayerTrace, score: str) -> str:
    """Why no temperature of ``score`` can be solved for at a layer, a sentence; empty where it can."""
    if block.factors is None:
        return block.unavailable("riemannian")
    if score == "blended":
        return "the blended score has no one temperature"
    if score == "euclidean" and (block.factors.softcap is not None or block.factors.sinks is not None):
        return "a soft cap or a sink is no temperature's doing"
    return ""


def matched_variation(
    trace: Trace, *, layer: int, score_a: str, score_b: str, alpha: float | None = None
) -> Float[np.ndarray, "head row"]:
    """Total variation of every row between two scores, ``score_a`` at the mean row entropy of ``score_b``: in [0, 1].

    NaN for a layer that has no such attention, or whose temperature cannot be solved for.
    """
    block = trace.layers[layer]
    if block.factors is None or unmatched(block, score_a):
        return np.full((block.heads, trace.length), np.nan)
    parts = []
    for head in range(block.heads):
        one = block.select(head)
        moved, _ = at_entropy(one, score_a, score_b, alpha)
        gap = head_map(moved, 0, score_a, alpha).double() - head_map(one, 0, score_b, alpha).double()
        parts.append((gap.abs().sum(-1) / 2).cpu().numpy())
    return np.stack(parts)


def all_heads(
    trace: Trace, *, layer: int, score: str, other: str | None = None, bins: int = 48, alpha: float | None = None,
    match: str | None = None,
) -> Float[np.ndarray, "head bin column"]:  # fmt: skip
    """Every head's map of a layer, max-pooled to at most ``bins`` cells a side; one map in memory at a time.

    With ``other`` it is the difference other - score: the signed cell of largest magnitude of each bin. With ``match``
    ``score`` is taken at that score's mean row entropy, head by head, where that can be done. Cells above the diagonal
    of a causal map are 0 and mean nothing. A bin with a cell that is not finite is NaN. Raises ``ValueError`` with the
    reason where the layer has no such attention.
    """
    block = trace.layers[layer]
    if missing := block.unavailable(score) or (other is not None and block.unavailable(other)):
        raise ValueError(missing)
    causal = is_causal(trace, layer)
    heads = []
    for head in range(block.heads):
        one = block.select(head)
        moved = at_entropy(one, score, match, alpha)[0] if match and not unmatched(one, score) else one
        cells = head_map(moved, 0, score, alpha)
        if other is not None:
            cells = head_map(one, 0, other, alpha) - cells
        heads.append(max_pool(cells, bins, causal, magnitude=other is not None).values)
    return np.stack(heads)


def is_causal(trace: Trace, layer: int) -> bool:
    """Whether nothing above the diagonal of a layer's maps may be attended to, and the map is square."""
    block, factors = trace.layers[layer], trace.layers[layer].factors
    if trace.rectangular or not block.heads or trace.length < 2:
        return factors is not None and factors.causal and not trace.rectangular
    if factors is None:
        assert block.maps is not None
        return not block.maps.triu(1).any()
    return factors.causal or (factors.mask is not None and not allowed(factors.select(0)).triu(1).any())


def term_maps(
    trace: Trace, *, layer: int, head: int, of: str = "riemannian", bins: int = 128
) -> dict[str, Float[np.ndarray, "bin column"]]:
    """Each term of Eq. 28 as a map in nats, minus its mean over the keys that the row may see; NaN where masked.

    A constant along a row cancels in the softmax, so the query's norm is left out. Max-pooled by magnitude to at most
    ``bins`` cells a side. Keys are the names in ``TERMS``. Memory O(L^2) for one head's terms, in row tiles of 256.
    """
    factors = trace.layers[layer].given.select(head)
    length = trace.length
    names = [name for name in TERMS if name != "query_norm"]
    parts: dict[str, list[Tensor]] = {name: [] for name in names}
    for start in range(0, length, 256):
        rows = slice(start, min(start + 256, length))
        terms, seen = score_terms(factors, rows, of), allowed(factors, rows)
        for name in names:
            kept = terms[name].masked_fill(~seen, 0.0)
            centred = terms[name] - kept.sum(-1, keepdim=True) / seen.sum(-1, keepdim=True)
            parts[name].append(centred.masked_fill(~seen, 0.0))
    causal = is_causal(trace, layer)
    pooled = {name: max_pool(torch.cat(tiles), bins, causal, magnitude=True) for name, tiles in parts.items()}
    return {name: np.where(pool.masked, np.float32(np.nan), pool.values) for name, pool in pooled.items()}


def _to_numpy(cells: Tensor) -> np.ndarray:
    return cells.detach().float().cpu().numpy()
