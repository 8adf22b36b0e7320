// The forward pass for bfloat16 on the matrix unit. The weights of the values are rounded to bfloat16 too.
#pragma once

#include <algorithm>

#include "forward.h"
#include "half.h"

#ifdef MATRIX_UNIT
using HalfProblem = Problem<float, Half>;

class HalfChunk {  // the queries ``begin`` to ``end`` of one head
    const HalfProblem& p;
    const long b, begin, end, pairs, room;
    Words padded, U;                // of the queries
    const uint32_t* q;
    Words some, k, Uk, v, weights;  // of a block of keys, and of a tile
    Room<float> out, most, sum, logits, products, column, w;

  public:
    HalfChunk(const HalfProblem& p, long b, long begin, long end)
        : p(p), b(b), begin(begin), end(end), pairs(p.width / 2), room((end - begin + SIDE - 1) / SIDE * SIDE),
          padded(room > end - begin ? room * pairs : 0), U(room * pairs * p.rank),
          some(KEYS * std::max(pairs * std::max(p.rank, 1L), p.value / 2)), k(KEYS * pairs),
          Uk(KEYS * pairs * p.rank), v(KEYS / 2 * p.value), weights(SIDE * KEYS / 2), out(room * p.value), most(room),
          sum(room * LANES<float>), logits(SIDE * KEYS), products(SIDE * SIDE * (1 + 2 * p.rank)), column(KEYS),
          w(KEYS * p.rank) {}

    void run() {
        const Unit unit;
        const Half* queries = p.q + (b * p.rows + begin) * p.width;
        if (room > end - begin) rows_of_words(padded, queries, end - begin, room, p.width);
        q = room > end - begin ? padded.at : (const uint32_t*)queries;
        if (p.rank) rows_of_ranks(U, p.U + (b * p.keys + begin) * p.width * p.rank, end - begin, room, p.width, p.rank);
        for (long i = 0; i < room; ++i) most[i] = -std::numeric_limits<float>::infinity();
        for (long at = 0; at < room * LANES<float>; ++at) sum[at] = 0;
        for (long at = 0; at < room * p.value; ++at) out[at] = 0;
        for (long key = 0; key < (p.causal && end < p.keys ? end : p.keys); key += KEYS) {
            fill(key, p.keys - key < KEYS ? p.keys - key : KEYS);
            for (long i = p.causal && key > begin ? key : begin; i < end; i += SIDE) tile(i, key);
        }
        for (long i = begin; i < end; ++i) {
            const float share = finish_row(p, b * p.rows + i, most[i - begin], sum + (i - begin) * LANES<float>);
            const float* row = out + (i - begin) * p.value;
            for (long c = 0; c < p.value; c += 16)
                store_halves(p.out + (b * p.rows + i) * p.value + c, (__m512)(share * load(row + c)));
        }
    }

  private:
    void fill(long key, long count) {
        const long at = b * p.keys + key;
        rows_of_words(some, p.k + at * p.width, count, KEYS, p.width);
        columns_of_rows(k, some, KEYS, pairs);
        rows_of_words(some, p.v + at * p.value, count, KEYS, p.value);
        pairs_of_rows(v, some, KEYS, p.value);
        if (p.rank) rows_of_ranks(some, p.U + at * p.width * p.rank, count, KEYS, p.width, p.rank);
        columns_of_rows(Uk, some, KEYS * p.rank, pairs);
        for (long j = 0; j < KEYS; ++j) {
            column[j] = j < count ? p.column[at + j] : -std::numeric_limits<float>::infinity();
            for (long a = 0; a < p.rank; ++a) w[a * KEYS + j] = j < count ? p.w[(at + j) * p.rank + a] : 0;
        }
    }

    void tile(long i, long key) {
        const long last = i + SIDE - 1, left = p.causal && last - key + 1 < KEYS ? last - key + 1 : KEYS;
        const long seen = (left + SIDE - 1) / SIDE * SIDE;
        const float slope = p.slope ? p.slope[b % p.heads] : 0;
        const bool hides = p.causal && key + seen - 1 > i;
        for (long j = 0; j < seen; j += SIDE) square(i, j);
        for (long r = 0; r < SIDE; ++r) {
            const long at = i - begin + r;
            float* row = logits + r * KEYS;
            if (hides || slope != 0) place(row, i + r, key, seen, slope, hides);
            soften<ROUGH>(row, seen, out + at * p.value, p.value, most[at], sum + at * LANES<float>);
            for (long j = 0; j < seen; j += 32)
                store_row(weights + (r * KEYS + j) / 2, _mm512_load_ps(row + j), _mm512_load_ps(row + j + 16));
        }
        for (long c = 0; c < p.value; c += SIDE)
            product<true>(out + (i - begin) * p.value + c, p.value, {weights, KEYS / 2}, of_pairs(v + c, p.value),
                          seen / 2);
    }

    // The logits of the queries from ``i`` on with the keys from the block's ``j`` on.
    void square(long i, long j) {
        constexpr long SQUARE = SIDE * SIDE;
        const Left queries{q + (i - begin) * pairs, pairs};
        const Right keys = of_columns(k + j * pairs, pairs);
        product<false>(products, SIDE, queries, keys, pairs);
        for (long a = 0; a < p.rank; ++a) {
            const Left Ui{U + (a * room + i - begin) * pairs, pairs};
            product<false>(products + (1 + 2 * a) * SQUARE, SIDE, Ui, keys, pairs);
            const Right Uj = of_columns(Uk + (a * KEYS + j) * pairs, pairs);
            product<false>(products + (2 + 2 * a) * SQUARE, SIDE, queries, Uj, pairs);
        }
        const float dot = p.dot[b % p.heads], strength = p.square[b % p.heads];
        for (long r = 0; r < SIDE; ++r) {
            const float* u = p.u + (b * p.rows + (i + r < end ? i + r : end - 1)) * p.rank;
            for (long n = 0; n < SIDE; n += LANES<float>) {
                const float* made = products + r * SIDE + n;
                Vector<float> total = {};
                for (long a = 0; a < p.rank; ++a) {
                    const Vector<float> x = load(made + (1 + 2 * a) * SQUARE) - u[a];
                    const Vector<float> y = load(made + (2 + 2 * a) * SQUARE) - load(w + a * KEYS + j + n);
                    total += x * x + y * y;
                }
                store(logits + r * KEYS + j + n, dot * load(made) + load(column + j + n) - strength * total);
            }
        }
    }
};
#endif
