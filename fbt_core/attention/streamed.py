"""Exact attention by any score, streamed over tiles of rows: memory grows with L, never with L^2 or L^2 r."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from fbt_core.attention.scores import Factors, attention

TILE_ROWS = 64
"""Rows of a tile: enough for the products to be fast, and few enough to leave out most of what a causal mask hides."""

TILE_PAIRS = 1 << 18
"""Pairs of tokens in a tile, heads together: 1 MB in float32 for each intermediate, which a core's cache can hold."""

KEPT_PAIRS = 1 << 22
"""With at most this many pairs in all, training keeps every tile; with more it computes them again, tile by tile."""


def streamed_attention(
    f: Factors, score: str = "riemannian", tile: int | None = None
) -> Float[Tensor, "*head token dim"]:
    """sum_j softmax_j(s_ij + bias) v_j for every row i, ``tile`` rows at a time (default ``TILE_ROWS``).

    Each row sees all its keys at once, so the softmax is the plain one and not a running one. Differentiable: for a
    large problem the backward pass computes each tile again instead of keeping it. Keys behind the last row of a
    causal tile are left out. Cost (1 + r) times standard attention in matrix products (docs/mathematics.md).
    """
    again = torch.is_grad_enabled() and _pairs(f) > KEPT_PAIRS
    return torch.cat([_attend_heads(f.heads(some), score, tile, again) for some in _head_chunks(f)], dim=-3)


def _attend_heads(f: Factors, score: str, tile: int | None, again: bool) -> Tensor:
    """Some heads, a tile of rows at a time; ``again`` computes each tile once more in the backward pass."""
    length, keys = f.q.shape[-2], f.k.shape[-2]
    f = f.with_images()
    outputs = []
    for start in range(0, length, tile or TILE_ROWS):
        stop = min(start + (tile or TILE_ROWS), length)
        where = (f, score, slice(start, stop), slice(0, stop if f.causal else keys))
        outputs.append(checkpoint(_attend_rows, *where, use_reentrant=False) if again else _attend_rows(*where))
    return torch.cat(outputs, dim=-2)


def _attend_rows(f: Factors, score: str, rows: slice, columns: slice) -> Tensor:
    return attention(f, score, rows, columns) @ f.v[..., columns, :]


def _head_chunks(f: Factors) -> list[slice]:
    """As many heads at once as keep a tile within ``TILE_PAIRS``, and at least one."""
    heads, length = f.q.shape[-3], f.q.shape[-2]
    a_head = f.q[..., 0, 0, 0].numel() * min(TILE_ROWS, length) * length
    some = max(1, TILE_PAIRS // a_head)
    return [slice(start, min(start + some, heads)) for start in range(0, heads, some)]


def _pairs(f: Factors) -> int:
    """Pairs of tokens, all heads (and sequences) together."""
    return f.q[..., 0].numel() * f.k.shape[-2]
