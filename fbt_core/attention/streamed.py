"""Exact attention by any score, streamed over tiles of rows: memory grows with L, never with L^2 or L^2 r."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from fbt_core.attention.scores import SCORES, Factors, bias

TILE_ELEMENTS = 1 << 20
"""Pairs of tokens in one tile, all heads together: 4 MB in float32 for each intermediate."""

WHOLE_ELEMENTS = 1 << 22
"""With at most this many pairs in all, training keeps every tile; with more it computes them again, tile by tile."""


def streamed_attention(
    f: Factors, score: str = "riemannian", tile: int | None = None
) -> Float[Tensor, "*head token dim"]:
    """sum_j softmax_j(s_ij + bias) v_j for every row i, ``tile`` rows at a time (default: by ``TILE_ELEMENTS``).

    Each row sees all its keys at once, so the softmax is the plain one and not a running one. Differentiable: for a large
    problem the backward pass computes each tile again instead of keeping it. Rows above the diagonal of a
    causal tile are not computed. Cost (1 + r) times standard attention in matrix products (docs/mathematics.md).
    """
    length = f.q.shape[-2]
    tile = tile or _rows_that_fit(f)
    again = torch.is_grad_enabled() and _scalars(f) > WHOLE_ELEMENTS
    outputs = []
    for start in range(0, length, tile):
        stop = min(start + tile, length)
        where = (f, score, slice(start, stop), slice(0, stop if f.causal else length))
        outputs.append(checkpoint(_attend_rows, *where, use_reentrant=False) if again else _attend_rows(*where))
    return torch.cat(outputs, dim=-2)


def _attend_rows(f: Factors, score: str, rows: slice, columns: slice) -> Tensor:
    logits = SCORES[score].function(f, rows, columns)
    extra = bias(f, rows, columns)
    weights = (logits if extra is None else logits + extra).softmax(-1)
    return weights @ f.v[..., columns, :]


def _rows_that_fit(f: Factors) -> int:
    """As many rows as the budget holds, at least 16; of a causal map a quarter at most, to leave out what is masked."""
    length = f.k.shape[-2]
    rows = max(16, TILE_ELEMENTS * length // _scalars(f))
    return min(rows, max(32, -(-length // 4))) if f.causal else rows


def _scalars(f: Factors) -> int:
    """Pairs of tokens, all heads (and sequences) together."""
    return f.q[..., 0].numel() * f.k.shape[-2]
