// A block of keys in the backward pass for bfloat16: what the matrix unit reads of it, and what is summed for it.
#pragma once

#include <algorithm>

#include "backward.h"
#include "half.h"

#ifdef MATRIX_UNIT
constexpr long TILE = BLOCK * BLOCK;

struct HalfKeys {
    const long d, e, r;            // e is the values' width
    Words some, k, v, kp, Uk, Up;  // as columns and as pairs; these and the next, rank by rank
    Room<float> dv, Dq, EU, dU;    // sums over queries, turned: (column, key)
    Room<float> DB, column, w, of_column;

    HalfKeys(long d, long e, long r)
        : d(d), e(e), r(r), some(BLOCK * std::max(d, e) / 2), k(BLOCK * d / 2), v(BLOCK * e / 2), kp(BLOCK * d / 2),
          Uk(r * BLOCK * d / 2), Up(r * BLOCK * d / 2), dv(BLOCK * e), Dq(BLOCK * d), EU(BLOCK * d), dU(r * BLOCK * d),
          DB(r * BLOCK), column(BLOCK), w(r * BLOCK), of_column(BLOCK) {}

    // The keys ``j`` on of head ``b``; U is that of all the head's tokens, rows of words (rank, room, width).
    void fill(const Problem<float, Half>& p, long b, long j, long count, const uint32_t* U, long room) {
        const long at = b * p.keys + j, pairs = d / 2;
        rows_of_words(some, p.v + at * e, count, BLOCK, e), columns_of_rows(v, some, BLOCK, e / 2);
        rows_of_words(some, p.k + at * d, count, BLOCK, d), columns_of_rows(k, some, BLOCK, pairs);
        pairs_of_rows(kp, some, BLOCK, d);
        for (long a = 0; a < r; ++a) {
            const uint32_t* rows = U + (a * room + j) * pairs;
            columns_of_rows(Uk + a * BLOCK * pairs, rows, BLOCK, pairs);
            pairs_of_rows(Up + a * BLOCK * pairs, rows, BLOCK, d);
        }
        for (long n = 0; n < BLOCK; ++n) {
            column[n] = n < count ? p.column[at + n] : -std::numeric_limits<float>::infinity();
            for (long a = 0; a < r; ++a) w[a * BLOCK + n] = n < count ? p.w[(at + n) * r + a] : 0;
        }
        clear(dv.at, BLOCK * e), clear(Dq.at, BLOCK * d), clear(EU.at, BLOCK * d);
        clear(dU.at, r * BLOCK * d), clear(DB.at, r * BLOCK), clear(of_column.at, BLOCK);
    }
};
#endif
