"""Attention as a page shows it: one map, all heads at once, the terms of the score. Every function takes a trace and
plain options, and returns numpy, so that its result can be cached under them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from fbt_core.attention.decompose import TERMS, score_terms
from fbt_core.attention.pooling import head_map, max_pool, mean_over_heads, rollout
from fbt_core.attention.scores import allowed
from fbt_core.trace import Trace

VIEWS = {"head": "one head", "mean": "mean over heads", "rollout": "rollout up to this layer"}
"""What one map may show."""


@dataclass(frozen=True)
class ShownMap:
    """A map and the entropy of its rows."""

    cells: Float[np.ndarray, "row column"]  # float32, rows sum to 1
    entropy: Float[np.ndarray, " row"]  # nats, computed in float64


def one_map(
    trace: Trace, *, score: str, layer: int, head: int = 0, view: str = "head", alpha: float | None = None
) -> ShownMap:
    """The map of one head, the mean of a layer, or the rollout up to it. Raises ``ValueError`` for another view."""
    if view not in VIEWS:
        raise ValueError(f"got view {view!r}, expected one of {', '.join(VIEWS)}")
    if view == "rollout":
        cells = rollout(trace, score, layer, alpha)
    elif view == "mean":
        cells = mean_over_heads(trace.layers[layer], score, alpha)
    else:
        cells = head_map(trace.layers[layer], head, score, alpha)
    entropy = torch.special.entr(cells.cpu().double()).sum(-1).clamp_min(0)
    return ShownMap(_to_numpy(cells), entropy.numpy())


def all_heads(
    trace: Trace, *, layer: int, score: str, other: str | None = None, bins: int = 48, alpha: float | None = None
) -> Float[np.ndarray, "head bin column"]:
    """Every head's map of a layer, max-pooled to at most ``bins`` cells a side; one map in memory at a time.

    With ``other`` it is the difference other - score: the signed cell of largest magnitude of each bin. Cells above the
    diagonal of a causal map are 0 and mean nothing. A bin with a cell that is not finite is NaN. Raises ``ValueError``
    with the reason where the layer has no such attention.
    """
    block = trace.layers[layer]
    if missing := block.unavailable(score) or (other is not None and block.unavailable(other)):
        raise ValueError(missing)
    causal = is_causal(trace, layer)
    heads = []
    for head in range(block.heads):
        cells = head_map(block, head, score, alpha)
        if other is not None:
            cells = head_map(block, head, other, alpha) - cells
        heads.append(max_pool(cells, bins, causal, magnitude=other is not None).values)
    return np.stack(heads)


def is_causal(trace: Trace, layer: int) -> bool:
    """Whether nothing above the diagonal of a layer's maps may be attended to, and the map is square."""
    factors = trace.layers[layer].factors
    return factors is not None and factors.causal and not trace.rectangular


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
