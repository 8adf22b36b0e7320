"""The gradients of ``triton_kernel.forward``, without atomics: the same inputs give the same bits.

The logit reads the same with queries and keys exchanged, so one kernel serves both: its rows are the queries, then once
more the keys. Each time it makes the tile again, 7 + 8 r products of d numbers a pair in all. One pass over the tiles
would need 5 + 6 r, but would have to add into the other side's gradients from many programs at once.
"""

# ruff: noqa: RUF005 (Triton compiles no unpacking in a tuple)

from __future__ import annotations

import triton
import triton.language as tl

from fbt_core.attention.triton_kernel import differences, line, tile, visible, write


@triton.jit(do_not_specialize=["heads", "length"])
def backward(
    x, y, vx, vy, U, u, w, column, dot, square, slope, lse, delta, dx, dU, du, dv, dcolumn, dhead, heads, length,
    KEYS: tl.constexpr,
    RANK: tl.constexpr, DIM: tl.constexpr, VALUE: tl.constexpr, CAUSAL: tl.constexpr, ALIBI: tl.constexpr,
    PRECISION: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DIM_PAD: tl.constexpr, VALUE_PAD: tl.constexpr,
):  # fmt: skip
    """With ``KEYS`` false, rows are queries: x = q, y = k, vx = d out, vy = v, u and w their images. It writes dq (dx),
    dU and du of the rows, and of each head's dot and square what this program's rows give (dhead).

    With ``KEYS`` true, rows are keys: x = k, y = q, vx = v, vy = d out, u and w exchanged as well. It writes dk, dU,
    dw, dv and dcolumn of the rows.
    """
    head = tl.program_id(1).to(tl.int64)
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    dims, values = tl.arange(0, DIM_PAD), tl.arange(0, VALUE_PAD)
    along, strength = tl.load(dot + head % heads), tl.load(square + head % heads)
    y, vy = y + head * length * DIM, vy + head * length * VALUE
    U, u, w = U + head * RANK * length * DIM, u + head * RANK * length, w + head * RANK * length
    column, lse, delta = column + head * length, lse + head * length, delta + head * length
    here = tile(x + head * length * DIM, rows, dims, length, DIM)
    content = tile(vx + head * length * VALUE, rows, values, length, VALUE)
    none, empty = tl.zeros((ROWS,), along.dtype), tl.zeros((ROWS, DIM_PAD), along.dtype)
    of_x, of_v, of_column = empty, tl.zeros((ROWS, VALUE_PAD), along.dtype), none
    of_dot, of_square, of_U, of_u = none, none, (), ()
    for _ in tl.static_range(RANK):
        of_U, of_u = of_U + (empty,), of_u + (none,)
    first = tl.program_id(0) * ROWS // COLUMNS * COLUMNS if CAUSAL and KEYS else 0
    last = tl.minimum(length, tl.max(rows, 0) + 1) if CAUSAL and not KEYS else length
    for start in range(first, last, COLUMNS):
        columns = start + tl.arange(0, COLUMNS)
        there = tile(y, columns, dims, length, DIM)
        plain = tl.dot(here, tl.trans(there), input_precision=PRECISION)
        score, squares = plain * along, tl.zeros((ROWS, COLUMNS), along.dtype)
        mine, theirs = (), ()
        for rank in tl.static_range(RANK):
            a, b = differences(here, there, U, u, U, w, rank, rows, columns, length, dims, DIM, PRECISION)
            squares += a * a
            squares += b * b
            mine, theirs = mine + (a.to(there.dtype),), theirs + (b.to(there.dtype),)
        score -= strength * squares
        if ALIBI:
            score -= tl.load(slope + head % heads) * tl.abs(rows[:, None] - columns[None, :])
        if KEYS:
            score += line(column, rows, length)[:, None] - line(lse, columns, length)[None, :]
            seen = visible(columns[None, :], rows[:, None], length, CAUSAL)
        else:
            score += line(column, columns, length)[None, :] - line(lse, rows, length)[:, None]
            seen = visible(rows[:, None], columns[None, :], length, CAUSAL)
        weights = tl.exp(tl.where(seen, score, float("-inf")))
        other = tile(vy, columns, values, length, VALUE)
        pull = tl.dot(content, tl.trans(other), input_precision=PRECISION)
        pull -= line(delta, columns, length)[None, :] if KEYS else line(delta, rows, length)[:, None]
        pull *= weights  # the gradient of the logit
        of_x += tl.dot((along * pull).to(there.dtype), there, input_precision=PRECISION)
        last_U, last_u, of_U, of_u = of_U, of_u, (), ()
        for rank in tl.static_range(RANK):
            step = -2 * strength * pull
            a, b = step * mine[rank], step * theirs[rank]
            V = tile(U + rank * length * DIM, columns, dims, length, DIM)
            of_x += tl.dot(b.to(V.dtype), V, input_precision=PRECISION)
            of_U = of_U + (last_U[rank] + tl.dot(a.to(there.dtype), there, input_precision=PRECISION),)
            of_u = of_u + (last_u[rank] - tl.sum(a, 1),)
        if KEYS:
            of_v += tl.dot(weights.to(other.dtype), other, input_precision=PRECISION)
            of_column += tl.sum(pull, 1)
        else:
            of_dot += tl.sum(pull * plain, 1)
            of_square -= tl.sum(pull * squares, 1)
    write(dx + head * length * DIM, rows, dims, length, DIM, of_x)
    for rank in tl.static_range(RANK):
        write(dU + (head * RANK + rank) * length * DIM, rows, dims, length, DIM, of_U[rank])
        tl.store(du + (head * RANK + rank) * length + rows, of_u[rank], mask=rows < length)
    if KEYS:
        write(dv + head * length * VALUE, rows, values, length, VALUE, of_v)
        tl.store(dcolumn + head * length + rows, of_column, mask=rows < length)
    else:
        place = dhead + head * tl.num_programs(0) + tl.program_id(0)
        tl.store(place, tl.sum(of_dot, 0))
        tl.store(place + tl.num_programs(1) * tl.num_programs(0), tl.sum(of_square, 0))
