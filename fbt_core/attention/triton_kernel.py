"""The logit of ``expanded`` and its softmax on a GPU, tile by tile: no pair is ever stored, extra memory is O(L).

One program takes ``ROWS`` queries of a head and goes over the keys in steps of ``COLUMNS``, with the running softmax of
FlashAttention (Dao 2023, arXiv 2307.08691). Importing this module needs Triton, which CUDA builds of torch bring along.
Arrays lie head by head: q, k, v (head, token, width), U (head, rank, token, width), images u and w (head, rank, token).
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def tile(start, rows, columns, length, WIDTH: tl.constexpr):
    """(row, column) of a (length, WIDTH) matrix; 0 outside of it, which leaves every product as it is."""
    inside = (rows < length)[:, None] & (columns < WIDTH)[None, :]
    return tl.load(start + rows[:, None] * WIDTH + columns[None, :], mask=inside, other=0.0)


@triton.jit
def line(start, rows, length):
    """Entries of a vector; 0 outside of it."""
    return tl.load(start + rows, mask=rows < length, other=0.0)


@triton.jit
def write(start, rows, columns, length, WIDTH: tl.constexpr, content):
    """The tile's opposite, in the array's own number format."""
    inside = (rows < length)[:, None] & (columns < WIDTH)[None, :]
    tl.store(start + rows[:, None] * WIDTH + columns[None, :], content.to(start.dtype.element_ty), mask=inside)


@triton.jit
def differences(x, y, U, u, V, w, rank, rows, columns, length, dims, DIM: tl.constexpr, PRECISION: tl.constexpr):
    """U_i^T (y_j - x_i) of the rows' metrics and V_j^T (x_i - y_j) of the columns', at one rank: two (row, column).

    Loaded here and not held by the caller: what does not change in its loop the compiler moves out of it.
    """
    mine = tile(U + rank * length * DIM, rows, dims, length, DIM)
    first = tl.dot(mine, tl.trans(y), input_precision=PRECISION) - line(u + rank * length, rows, length)[:, None]
    theirs = tile(V + rank * length * DIM, columns, dims, length, DIM)
    second = tl.dot(x, tl.trans(theirs), input_precision=PRECISION) - line(w + rank * length, columns, length)[None, :]
    return first, second


@triton.jit
def visible(queries, keys, length, CAUSAL: tl.constexpr):
    """Which pairs count; the arguments are broadcast against each other."""
    inside = (queries < length) & (keys < length)
    return inside & (keys <= queries) if CAUSAL else inside


@triton.jit(do_not_specialize=["heads", "length"])
def forward(
    q, k, v, U, u, w, column, dot, square, slope, out, lse, heads, length,
    RANK: tl.constexpr, DIM: tl.constexpr, VALUE: tl.constexpr, CAUSAL: tl.constexpr, ALIBI: tl.constexpr,
    PRECISION: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DIM_PAD: tl.constexpr, VALUE_PAD: tl.constexpr,
):  # fmt: skip
    """out = softmax(l) v, and lse = log sum exp l, which the gradients need."""
    head = tl.program_id(1).to(tl.int64)
    rows = (tl.num_programs(0) - 1 - tl.program_id(0)) * ROWS + tl.arange(0, ROWS)  # the longest causal rows first
    dims, values = tl.arange(0, DIM_PAD), tl.arange(0, VALUE_PAD)
    along, strength = tl.load(dot + head % heads), tl.load(square + head % heads)
    k, v, column = k + head * length * DIM, v + head * length * VALUE, column + head * length
    U, u, w = U + head * RANK * length * DIM, u + head * RANK * length, w + head * RANK * length
    x = tile(q + head * length * DIM, rows, dims, length, DIM)
    top = tl.full((ROWS,), float("-inf"), along.dtype)
    total = tl.zeros((ROWS,), along.dtype)
    held = tl.zeros((ROWS, VALUE_PAD), along.dtype)
    last = tl.minimum(length, tl.max(rows, 0) + 1) if CAUSAL else length
    for start in range(0, last, COLUMNS):
        columns = start + tl.arange(0, COLUMNS)
        y = tile(k, columns, dims, length, DIM)
        score = tl.dot(x, tl.trans(y), input_precision=PRECISION) * along + line(column, columns, length)[None, :]
        for rank in tl.static_range(RANK):
            a, b = differences(x, y, U, u, U, w, rank, rows, columns, length, dims, DIM, PRECISION)
            score -= strength * a * a
            score -= strength * b * b
        if ALIBI:
            score -= tl.load(slope + head % heads) * tl.abs(rows[:, None] - columns[None, :])
        score = tl.where(visible(rows[:, None], columns[None, :], length, CAUSAL), score, float("-inf"))
        higher = tl.maximum(top, tl.max(score, 1))
        higher = tl.where(rows < length, higher, 0.0)  # a row that is none sees no key
        weights, shrink = tl.exp(score - higher[:, None]), tl.exp(top - higher)
        total = total * shrink + tl.sum(weights, 1)
        content = tile(v, columns, values, length, VALUE)
        held = held * shrink[:, None] + tl.dot(weights.to(content.dtype), content, input_precision=PRECISION)
        top = higher
    total = tl.where(rows < length, total, 1.0)
    write(out + head * length * VALUE, rows, values, length, VALUE, held / total[:, None])
    tl.store(lse + head * length + rows, top + tl.log(total), mask=rows < length)
