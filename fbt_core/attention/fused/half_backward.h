// The gradients for bfloat16 on the matrix unit: the sums of backward.h, whose letters these are, over tiles of
// BLOCK x BLOCK. The unit's left factors are rows of words, its right ones pairs of rows; a sum over queries is made
// turned, (column, key), so that its left factors are packed once a head. P, D, D A and D B are rounded to bfloat16.
#pragma once

#include <algorithm>

#include "half_keys.h"

#ifdef MATRIX_UNIT
class HalfHead {
    static constexpr long WORDS = TILE / 2;
    const Problem<float, Half>& p;
    const long b, d, r, e, room, pairs;  // e is the values' width, room the tokens in whole blocks
    const float dot, square, slope;
    Words q, g, U, qt, gt, Ut;     // rows of all queries, g for the gradient; and turned, (block, column, pair)
    Room<float> lse, delta, u;     // of all queries, in whole blocks
    Room<float> Dk, B_U, dU, dw;   // of all queries: sum D k, sum D B U, (block, rank, token, width); sum D B
    HalfKeys keys;
    Room<float> S, X, A, B;            // of the tile, as in backward.h, but A and B stay the products
    Words Pp, Dr, Dp, Ar, Ap, Br, Bp;  // P and D, and D A and D B of one rank, as rows and as pairs

  public:
    HalfHead(const Problem<float, Half>& p, long b)
        : p(p), b(b), d(p.width), r(p.rank), e(p.value), room((std::max(p.rows, p.keys) + BLOCK - 1) / BLOCK * BLOCK),
          pairs(d / 2), dot(p.dot[b % p.heads]), square(p.square[b % p.heads]),
          slope(p.slope ? p.slope[b % p.heads] : 0), q(room * pairs), g(room * e / 2), U(r * room * pairs),
          qt(room * pairs), gt(room * e / 2), Ut(r * room * pairs), lse(room), delta(room), u(room * r), Dk(room * d),
          B_U(room * d), dU(r * room * d), dw(room * r), keys(d, e, r), S(TILE), X(TILE),
          A(r * TILE), B(r * TILE), Pp(WORDS), Dr(WORDS), Dp(WORDS), Ar(WORDS), Ap(WORDS), Br(WORDS), Bp(WORDS) {}

    void run() {
        const Unit unit;
        queries();
        clear(Dk.at, room * d), clear(B_U.at, room * d), clear(dU.at, r * room * d);
        for (long j = 0; j < p.keys; j += BLOCK) {
            keys.fill(p, b, j, least(p.keys - j), U, room);
            for (long i = p.causal ? j : 0; i < p.rows; i += BLOCK) tile(i, j);
            end_keys(j, least(p.keys - j));
        }
        finish();
    }

  private:
    // Rows (tokens, width) to (block, column, pair of the block's tokens).
    void turned(uint32_t* to, const uint32_t* rows, long width) {
        Words block(BLOCK / 2 * width);
        for (long t = 0; t < room; t += BLOCK, to += BLOCK / 2 * width) {
            pairs_of_rows(block, rows + t * width / 2, BLOCK, width);
            for (long n = 0; n < BLOCK / 2; n += 16) turn(to + n, BLOCK / 2, block + n * width, width, width);
        }
    }

    void queries() {
        rows_of_words(q, p.q + b * p.rows * d, p.rows, room, d), turned(qt, q, d);
        rows_of_words(g, p.pull + b * p.rows * e, p.rows, room, e), turned(gt, g, e);
        if (r) rows_of_ranks(U, p.U + b * p.keys * d * r, p.rows, room, d, r);
        for (long a = 0; a < r; ++a) turned(Ut + a * room * pairs, U + a * room * pairs, d);
        for (long i = 0; i < room; ++i) {  // a query that is not there has weights 0
            lse[i] = i < p.rows ? p.lse[b * p.rows + i] : std::numeric_limits<float>::infinity();
            delta[i] = i < p.rows ? p.delta[b * p.rows + i] : 0;
            for (long a = 0; a < r; ++a) u[i * r + a] = i < p.rows ? p.u[(b * p.rows + i) * r + a] : 0;
        }
    }

    // c (rows, columns) = a b, or c += a b, by squares, whose right factors begin ``step`` words a column further.
    template <bool MORE>
    static void fill(float* c, long rows, long columns, Left a, Right b, long step, long depth) {
        for (long i = 0; i < rows; i += SIDE)
            for (long j = 0; j < columns; j += SIDE)
                product<MORE>(c + i * columns + j, columns, {a.at + i * a.stride, a.stride},
                              {b.at + j * step, b.stride, b.other}, depth);
    }
    static void make(float* c, const uint32_t* rows, const uint32_t* columns, long width) {
        fill<false>(c, BLOCK, BLOCK, {rows, width / 2}, of_columns(columns, width / 2), width / 2, width / 2);
    }
    static void add(float* c, long rows, long columns, const uint32_t* a, const uint32_t* pairs) {
        fill<true>(c, rows, columns, {a, BLOCK / 2}, of_pairs(pairs, columns), 1, BLOCK / 2);
    }

    void tile(long i, long j) {
        make(X, g + i * e / 2, keys.v, e);
        make(S, q + i * pairs, keys.k, d);
        for (long at = 0; at < TILE; at += LANES<float>)
            store(S + at, dot * load(S + at) + load(keys.column + at % BLOCK));
        for (long a = 0; a < r; ++a) {  // each rank while it is near
            make(A + a * TILE, U + (a * room + i) * pairs, keys.k, d);
            make(B + a * TILE, q + i * pairs, keys.Uk + a * BLOCK * pairs, d);
            for (long at = 0; at < TILE; at += LANES<float>) {
                const Vector<float> of_query = query_image(i, a, at), of_key = key_image(a, at);
                store(S + at, load(S + at) - square * (of_query * of_query + of_key * of_key));
            }
        }
        for (long row = 0; row < BLOCK; ++row) weigh(i + row, j, S + row * BLOCK, X + row * BLOCK);
        words(Pp, nullptr, [&](long at) { return load(S + at); });
        words(Dp, Dr, [&](long at) { return load(X + at); });
        add(keys.dv, e, BLOCK, gt + i * e / 2, Pp);
        add(keys.Dq, d, BLOCK, qt + i * pairs, Dp);
        add(Dk + i * d, BLOCK, d, Dr, keys.kp);
        for (long a = 0; a < r; ++a) add_rank(i, a);
    }

    void add_rank(long i, long a) {
        words(Ap, Ar, [&](long at) { return load(X + at) * query_image(i, a, at); });
        words(Bp, Br, [&](long at) {
            float* sum = keys.DB + a * BLOCK + at % BLOCK;
            const Vector<float> change = load(X + at) * key_image(a, at);
            store(sum, load(sum) + change);
            return change;
        });
        add(keys.EU, d, BLOCK, Ut + (a * room + i) * pairs, Ap);
        add(dU + i * d * r + a * BLOCK * d, BLOCK, d, Ar, keys.kp);
        add(B_U + i * d, BLOCK, d, Br, keys.Up + a * BLOCK * pairs);
        add(keys.dU + a * BLOCK * d, d, BLOCK, qt + i * pairs, Bp);
    }

    // A and B, 16 of them from ``at`` of the tile on.
    INLINE Vector<float> query_image(long i, long a, long at) const {
        return load(A + a * TILE + at) - u[(i + at / BLOCK) * r + a];
    }
    INLINE Vector<float> key_image(long a, long at) const {
        return load(B + a * TILE + at) - load(keys.w + a * BLOCK + at % BLOCK);
    }

    // One row of the tile: S becomes P, X becomes D.
    void weigh(long i, long j, float* s, float* x) {
        const bool hides = p.causal && j + BLOCK - 1 > i;
        if (hides || slope != 0) place(s, i, j, BLOCK, slope, hides);
        for (long n = 0; n < BLOCK; n += LANES<float>) {
            const Vector<float> weight = exponential<float, ROUGH>(load(s + n) - lse[i]);
            const Vector<float> change = weight * (load(x + n) - delta[i]);
            store(s + n, weight), store(x + n, change);
            store(keys.of_column + n, load(keys.of_column + n) + change);
        }
    }

    // What ``of`` gives for each 16 numbers of the tile, in bfloat16: as pairs of rows and, where asked, as rows.
    template <class F> static INLINE void words(uint32_t* pairs, uint32_t* rows, F of) {
        for (long row = 0; row < BLOCK; row += 2)
            for (long n = 0; n < BLOCK; n += SIDE, pairs += SIDE) {
                const long at = row * BLOCK + n;
                const __m512 above[] = {(__m512)of(at), (__m512)of(at + 16)};
                const __m512 below[] = {(__m512)of(at + BLOCK), (__m512)of(at + BLOCK + 16)};
                store_pairs(pairs, above[0], below[0]), store_pairs(pairs + 16, above[1], below[1]);
                if (!rows) continue;
                store_row(rows + at / 2, above[0], above[1]), store_row(rows + (at + BLOCK) / 2, below[0], below[1]);
            }
    }

    void end_keys(long j, long count) {
        for (long n = 0; n < count; ++n) {
            const long at = b * p.keys + j + n;
            p.dcolumn[at] = keys.of_column[n];
            for (long c = 0; c < e; ++c) p.dv[at * e + c] = rounded(keys.dv[c * BLOCK + n]);
            for (long a = 0; a < r; ++a) {
                dw[(j + n) * r + a] = keys.DB[a * BLOCK + n];
                float* to = dU + j * d * r + (a * BLOCK + n) * d;
                for (long c = 0; c < d; ++c) to[c] += keys.dU[(a * d + c) * BLOCK + n];
            }
            for (long c = 0; c < d; ++c) {
                float sum = dot * keys.Dq[c * BLOCK + n] - 2 * square * keys.EU[c * BLOCK + n];
                const Half* Uc = p.U + (at * d + c) * r;
                for (long a = 0; a < r; ++a) sum += 2 * square * keys.DB[a * BLOCK + n] * Uc[a];
                p.dk[at * d + c] = rounded(sum);
            }
        }
    }

    void finish() {
        float of_dot = 0, of_square = 0;
        Room<float> pulled(r);
        for (long i = 0; i < p.rows; ++i) {
            const long at = b * p.rows + i;
            const Half *q = p.q + at * d, *k = p.k + at * d, *U = p.U + at * d * r;
            const float* to_U = dU + i / BLOCK * BLOCK * d * r + i % BLOCK * d;
            for (long a = 0; a < r; ++a) pulled[a] = 0;
            for (long c = 0; c < d; ++c) {
                of_dot += q[c] * Dk[i * d + c];
                for (long a = 0; a < r; ++a) pulled[a] += U[c * r + a] * Dk[i * d + c];
            }
            for (long a = 0; a < r; ++a) of_square += p.u[at * r + a] * pulled[a] + p.w[at * r + a] * dw[i * r + a];
            for (long c = 0; c < d; ++c) {
                float sum = dot * Dk[i * d + c] - 2 * square * B_U[i * d + c];
                for (long a = 0; a < r; ++a) {
                    const float change = to_U[a * BLOCK * d + c];
                    sum += 2 * square * pulled[a] * U[c * r + a];
                    of_square -= U[c * r + a] * change;
                    const float of_U = pulled[a] * q[c] + dw[i * r + a] * k[c] - change;
                    p.dU[(at * d + c) * r + a] = rounded(2 * square * of_U);
                }
                p.dq[at * d + c] = rounded(sum);
            }
        }
        p.ddot[b] = of_dot, p.dsquare[b] = of_square;
    }
};
#endif
