"""Exact attention by a compiled kernel, where there is one and the problem is large enough to be worth it."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from fbt_core.attention.expanded import expanded, plain_autograd
from fbt_core.attention.fused.build import kernel
from fbt_core.attention.fused.features import about_keys_mean, compiled_features, dictionary_features, norms
from fbt_core.attention.fused.function import attend, matrix_unit
from fbt_core.attention.scores import Factors

__all__ = [
    "about_keys_mean", "attention", "compiled_features", "dictionary_features", "norms", "products", "serves",
]  # fmt: skip

LARGE = 1 << 21
"""Pairs of tokens times 1 + rank from which the kernel is used: less takes torch a few hundredths of a second."""

NUMBERS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def serves(f: Factors, rank: int) -> bool:
    """Whether the kernel can compute this attention at a metric of this rank, is there, and pays."""
    rows, keys = f.q.shape[-2], f.k.shape[-2]
    plain = f.mask is None and (rows == keys or rank == 0) and plain_autograd(f)
    large = f.q[..., 0].numel() * keys * (1 + rank) >= LARGE
    ours = f.q.device.type == "cpu" and f.q.dtype in NUMBERS
    return plain and large and ours and kernel() is not None


def attention(f: Factors, score: str = "blended") -> Float[Tensor, "*head row value"]:
    """Attention by any score that ``expanded`` takes apart, for metrics with factors of their own (or of rank 0)."""
    e = expanded(f, score)
    return _attend(f, e.q, e.k, e.U, e.column, e.dot, e.square)


def products(
    f: Factors, queries: Tensor, keys: Tensor, column: Tensor, along: Tensor
) -> Float[Tensor, "*head row value"]:
    """Attention by the score along queries_i . keys_j + column_j, to the values and with the slopes of ``f``."""
    return _attend(f, queries, keys, keys.new_zeros(*keys.shape, 0), column, along, torch.zeros_like(along))


def _attend(f: Factors, *given: Tensor) -> Tensor:
    """In bfloat16 where a matrix unit sums its products in float32, else in float32 at least."""
    wide = torch.promote_types(f.q.dtype, torch.float32)
    half = {x.dtype for x in (*given[:3], f.v)} == {torch.bfloat16} and matrix_unit()
    q, k, v, U = (x if half else x.to(wide) for x in (*given[:2], f.v, given[2]))
    rest = (None if x is None else x.to(wide) for x in (*given[3:], f.slopes))
    return attend(q, k, v, U, *rest, f.causal).to(f.q.dtype)
