"""The GPU kernels as one function that autograd knows, and the tiles that they work in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from fbt_core.attention.expanded import Expanded, own_images
from fbt_core.attention.triton_backward import backward
from fbt_core.attention.triton_kernel import forward


@dataclass(frozen=True)
class Blocks:
    """A program's rows, the columns of a step, its warps of 32 threads, and the steps whose tiles it holds at once."""

    rows: int
    columns: int
    warps: int
    stages: int

    def size(self, row: int, column: int) -> int:
        """Bytes of shared memory, where tokens bring ``row`` and ``column`` bytes: what Triton takes, within 2 kB."""
        return self.rows * row + self.stages * self.columns * column


FORWARD = (
    Blocks(128, 64, 8, 2),
    Blocks(128, 32, 8, 2),
    Blocks(64, 32, 8, 2),
    Blocks(32, 32, 4, 1),
    Blocks(16, 16, 4, 1),
)
BACKWARD = (Blocks(32, 64, 8, 2), Blocks(32, 32, 8, 2), Blocks(16, 32, 4, 1), Blocks(16, 16, 4, 1))
"""From the largest on; the first that the device has room for is taken. What the compiler tells for compute capability
9.0 and d = 64 in bfloat16: forward everything stays in registers at r = 4 and 8, backward all but 32 bytes a thread at
r = 4 and 0.5 kB at r = 8; float32 spills 0.7 kB forward and more backward."""


@dataclass(frozen=True)
class Plan:
    """What a launch fixes besides the tensors."""

    causal: bool
    precision: str  # of float32 products: "tf32x3" has float32's own digits
    forward: Blocks
    backward: Blocks


def plan(e: Expanded, smaller: int = 0) -> Plan:
    """The tiles and the precision for these tensors' device; tiles ``smaller`` steps below the largest that fit.

    A compiler may take more memory than a tile's own bytes: float32 in three parts does, and so do newer chips. Raises
    ``ValueError`` where no such tile has room.
    """
    here = torch.cuda.get_device_properties(e.q.device)
    size, rank = e.q.element_size(), e.U.shape[-1]
    points, values = padded(e.q.shape[-1]) * (1 + rank) * size, padded(e.v.shape[-1]) * size
    room = here.shared_memory_per_block_optin - 2048
    both = points + values
    fitting = [blocks for blocks in FORWARD if blocks.size(points, both) <= room]
    back = [blocks for blocks in BACKWARD if blocks.size(both, both) <= room]
    if not fitting or not back or smaller >= max(len(fitting), len(back)):
        raise ValueError(f"got tokens of {both:,} bytes, expected tiles for {room:,}: take the streamed path")
    tiles = (some[min(smaller, len(some) - 1)] for some in (fitting, back))
    precision = "tf32" if torch.backends.cuda.matmul.allow_tf32 else "tf32x3"
    return Plan(e.causal, precision if here.major >= 8 else "ieee", *tiles)


def padded(width: int) -> int:
    """The least power of two from 16 on that holds it: a tile's sides have no other lengths."""
    return max(16, 1 << (width - 1).bit_length())


def triton_attention(e: Expanded, how: Plan) -> Float[Tensor, "*head row value"]:
    """sum_j softmax_j(l_ij) v_j of the logit in ``expanded``; queries and keys are the same tokens.

    q, k, v and U are taken in q's dtype, sums run in float32 (float64 for float64). Differentiable once; slopes have no
    gradient. Deterministic. Cost: 2 (1 + r) products of d numbers a pair forward, 7 + 8 r backward.
    """
    dtype = e.q.dtype
    U = e.U.to(dtype)
    u, w = (own_images(U, x).mT.contiguous() for x in (e.q, e.k))
    return _Attend.apply(  # type: ignore[no-any-return]
        e.q.contiguous(), e.k.contiguous(), e.v.to(dtype).contiguous(), U.movedim(-1, -3).contiguous(), u, w,
        e.column.contiguous(), e.dot.contiguous(), e.square.contiguous(), e.slope, how,
    )  # fmt: skip


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, U: Tensor, u: Tensor, w: Tensor, column: Tensor, dot: Tensor,
        square: Tensor, slope: Tensor | None, how: Plan,
    ) -> Tensor:  # fmt: skip
        out, lse = torch.empty_like(v), torch.empty_like(column)
        slopes = dot if slope is None else slope.to(dot).contiguous()  # without ALiBi it is not read
        given = (q, k, v, U, u, w, column, dot, square, slopes)
        ctx.how, ctx.fixed = how, _fixed(q, v, U, how, slope is not None)
        forward[_grid(q, how.forward)](*given, out, lse, *_sizes(q), **ctx.fixed, **_options(how.forward))
        ctx.save_for_backward(*given, out, lse)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, U, u, w, column, dot, square, slopes, out, lse = ctx.saved_tensors
        pull = grads[0].to(v.dtype).contiguous()
        delta = (pull.to(lse) * out.to(lse)).sum(-1)
        blocks: Blocks = ctx.how.backward
        grid = _grid(q, blocks)
        heads = q.new_empty(2, grid[1], grid[0], dtype=lse.dtype)
        dq, dk, dv, du, dw, dcolumn = (torch.empty_like(x) for x in (q, k, v, u, w, column))
        as_query, as_key = torch.empty_like(U), torch.empty_like(U)
        same = (column, dot, square, slopes, lse, delta)
        end = (heads, *_sizes(q))
        queries, keys = (ctx.fixed | _options(blocks, KEYS=side) for side in (False, True))
        backward[grid](q, k, pull, v, U, u, w, *same, dq, as_query, du, dv, dcolumn, *end, **queries)
        backward[grid](k, q, v, pull, U, w, u, *same, dk, as_key, dw, dv, dcolumn, *end, **keys)
        ddot, dsquare = heads.sum(-1).reshape(2, -1, len(dot)).sum(1)
        return dq, dk, dv, as_query + as_key, du, dw, dcolumn, ddot, dsquare, None, None


def _fixed(q: Tensor, v: Tensor, U: Tensor, how: Plan, alibi: bool) -> dict[str, Any]:
    """What a compiled kernel is for."""
    width, value = q.shape[-1], v.shape[-1]
    return {
        "RANK": U.shape[-3], "DIM": width, "VALUE": value, "CAUSAL": how.causal, "ALIBI": alibi,
        "PRECISION": how.precision, "DIM_PAD": padded(width), "VALUE_PAD": padded(value),
    }  # fmt: skip


def _options(blocks: Blocks, **more: Any) -> dict[str, Any]:
    return more | {
        "ROWS": blocks.rows, "COLUMNS": blocks.columns, "num_warps": blocks.warps, "num_stages": blocks.stages
    }  # fmt: skip


def _grid(q: Tensor, blocks: Blocks) -> tuple[int, int]:
    return -(-q.shape[-2] // blocks.rows), q[..., 0, 0].numel()


def _sizes(q: Tensor) -> tuple[int, int]:
    return q.shape[-3], q.shape[-2]
