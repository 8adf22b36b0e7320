// out_i = sum_j softmax_j(l_ij) v_j: blocks of keys, packed once, meet all queries; the softmax is a running one.
#pragma once

#include "problem.h"

constexpr long KEYS = 128;    // of a block: their panels stay in the second cache
constexpr long QUERIES = 48;  // of a tile: their logits stay in the first
constexpr long CHUNK = 1024;  // queries that one thread takes, and packs the keys for

template <class T> struct Keys {  // a block of keys, packed
    Room<T> k, U, column;
    Keys(const Problem<T>& p) : k(KEYS * p.width), U(KEYS * p.width * p.rank), column(KEYS) {}
    void fill(const Problem<T>& p, long b, long first, long count) {
        const long at = b * p.keys + first;
        pack(k.at, p.k + at * p.width, count, KEYS, p.width, 1);
        pack(U.at, p.U + at * p.width * p.rank, count, KEYS, p.width, p.rank);
        for (long j = 0; j < KEYS; ++j)
            column[j] = j < count ? p.column[at + j] : -std::numeric_limits<T>::infinity();
    }
};

// logits -= square * (U_ia . k_j - u_ia)^2 for A ranks of Q queries: A numbers of U stand side by side.
template <int Q, int A, class T>
INLINE void subtract_query_ranks(const T* U, const T* u, long width, long rank, const T* panel, T square, T* logits) {
    const T* left[Q * A];
    Vector<T> sum[Q * A][VECTORS] = {};
#pragma GCC unroll 8
    for (int r = 0; r < Q * A; ++r) left[r] = U + r / A * width * rank + r % A;
    multiply(left, rank, panel, PANEL<T>, width, sum);
#pragma GCC unroll 8
    for (int i = 0; i < Q; ++i) {
#pragma GCC unroll 8
        for (int n = 0; n < VECTORS; ++n) {
            Vector<T> squares = {};
#pragma GCC unroll 8
            for (int a = 0; a < A; ++a) {
                const Vector<T> difference = sum[i * A + a][n] - u[i * rank + a];
                squares += difference * difference;
            }
            T* to = logits + i * KEYS + n * LANES<T>;
            store(to, load(to) - square * squares);
        }
    }
}

template <int A, class T>
void query_ranks(const T* U, const T* u, long rows, long width, long rank, const T* panel, T square, T* logits) {
    constexpr int Q = ROWS / A;
    long i = 0;
    for (; i + Q <= rows; i += Q)
        subtract_query_ranks<Q, A>(U + i * width * rank, u + i * rank, width, rank, panel, square, logits + i * KEYS);
    for (; i < rows; ++i)
        subtract_query_ranks<1, A>(U + i * width * rank, u + i * rank, width, rank, panel, square, logits + i * KEYS);
}

template <class T>
void all_query_ranks(const Problem<T>& p, long token, long rows, const T* panel, T square, T* logits) {
    const long passes = (p.rank + ROWS - 1) / ROWS, most = passes ? (p.rank + passes - 1) / passes : 1;
    for (long a = 0; a < p.rank; a += most) {
        const T *U = p.U + token * p.width * p.rank + a, *u = p.u + token * p.rank + a;
        switch (p.rank - a < most ? p.rank - a : most) {
            case 1: query_ranks<1>(U, u, rows, p.width, p.rank, panel, square, logits); break;
            case 2: query_ranks<2>(U, u, rows, p.width, p.rank, panel, square, logits); break;
            case 3: query_ranks<3>(U, u, rows, p.width, p.rank, panel, square, logits); break;
            case 4: query_ranks<4>(U, u, rows, p.width, p.rank, panel, square, logits); break;
            case 5: query_ranks<5>(U, u, rows, p.width, p.rank, panel, square, logits); break;
            case 6: query_ranks<6>(U, u, rows, p.width, p.rank, panel, square, logits); break;
        }
    }
}

// logits (rows, KEYS) of queries ``first`` on, with the first ``panels`` panels of the keys from ``key`` on.
template <class T>
void tile_logits(const Problem<T>& p, const Keys<T>& keys, long b, long first, long rows, long key, long panels,
                 T* logits) {
    const T dot = p.dot[b % p.heads], square = p.square[b % p.heads];
    const T *q = p.q + (b * p.rows + first) * p.width, *w = p.w + (b * p.keys + key) * p.rank;
    for (long panel = 0; panel < panels; ++panel) {
        const T* k = keys.k + panel * p.width * PANEL<T>;
        T* block = logits + panel * PANEL<T>;
        const T* column = keys.column + panel * PANEL<T>;
        with_panel(q, rows, p.width, k, [&](long i, Vector<T>(&sum)[VECTORS]) {
            for (int n = 0; n < VECTORS; ++n)
                store(block + i * KEYS + n * LANES<T>, dot * sum[n] + load(column + n * LANES<T>));
        });
        for (long a = 0; a < p.rank; ++a) {
            const T* U = keys.U + (a * (KEYS / PANEL<T>) + panel) * p.width * PANEL<T>;
            T own[PANEL<T>];
            for (long j = 0, at = panel * PANEL<T>; j < PANEL<T>; ++j, ++at)
                own[j] = key + at < p.keys ? w[at * p.rank + a] : T(0);
            with_panel(q, rows, p.width, U, [&](long i, Vector<T>(&sum)[VECTORS]) {
                for (int n = 0; n < VECTORS; ++n) {
                    T* to = block + i * KEYS + n * LANES<T>;
                    const Vector<T> difference = sum[n] - load(own + n * LANES<T>);
                    store(to, load(to) - square * (difference * difference));
                }
            });
        }
        all_query_ranks(p, b * p.keys + first, rows, k, square, block);
    }
}

template <class T> INLINE Vector<T> counted() {
    Vector<T> x = {};
    for (int lane = 0; lane < LANES<T>; ++lane) x[lane] = T(lane);
    return x;
}

// The bias of position, and - inf where the key comes after the query.
template <class T> void place(T* logits, long row, long key, long width, T slope, bool causal) {
    for (long j = 0; j < width; j += LANES<T>) {
        const Vector<T> after = counted<T>() + T(key + j - row);  // exact: counts of tokens
        Vector<T> x = load(logits + j) - slope * (after < T(0) ? -after : after);
        if (causal) x = after > T(0) ? splat(-std::numeric_limits<T>::infinity()) : x;
        store(logits + j, x);
    }
}

// One row of a tile: the logits become weights relative to the row's largest so far, and the output is scaled to that.
// ``sums`` are of the weights, lane by lane.
template <int TERMS, class T> INLINE void soften(T* logits, long width, T* out, long value, T& most, T* sums) {
    Vector<T> high = load(logits), sum = load(sums);
    for (long j = LANES<T>; j < width; j += LANES<T>) high = larger<T>(load(logits + j), high);
    const T before = most, now = largest<T>(high) > before ? largest<T>(high) : before;
    const T origin = now == -std::numeric_limits<T>::infinity() ? T(0) : now;
    if (now > before) {
        const T shrink = std::exp(before - origin);
        sum *= shrink;
        for (long c = 0; c < value; c += LANES<T>) store(out + c, shrink * load(out + c));
    }
    for (long j = 0; j < width; j += LANES<T>) {
        const Vector<T> weight = exponential<T, TERMS>(load(logits + j) - origin);
        store(logits + j, weight);
        sum += weight;
    }
    most = now;
    store(sums, sum);
}

// 1 / the sum of one row's weights over all keys, whose logarithm is kept.
template <class T, class S> T finish_row(const Problem<T, S>& p, long row, T most, const T* sums) {
    const T sum = total<T>(load(sums));
    p.lse[row] = most + std::log(sum);
    return 1 / sum;
}

template <class T> void attend_chunk(const Problem<T>& p, long b, long begin, long end) {
    Keys<T> keys(p);
    Room<T> logits(QUERIES * KEYS), most(end - begin), sums((end - begin) * LANES<T>);
    const T slope = p.slope ? p.slope[b % p.heads] : T(0);
    T* out = p.out + b * p.rows * p.value;
    for (long i = begin; i < end; ++i) most[i - begin] = -std::numeric_limits<T>::infinity();
    for (long at = 0; at < (end - begin) * LANES<T>; ++at) sums[at] = 0;
    for (long at = begin * p.value; at < end * p.value; ++at) out[at] = 0;
    for (long key = 0; key < (p.causal && end < p.keys ? end : p.keys); key += KEYS) {
        const long count = p.keys - key < KEYS ? p.keys - key : KEYS;
        keys.fill(p, b, key, count);
        for (long i = p.causal && key > begin ? key : begin; i < end; i += QUERIES) {
            const long rows = end - i < QUERIES ? end - i : QUERIES;
            const long seen = p.causal && i + rows - key < count ? i + rows - key : count;
            const long panels = (seen + PANEL<T> - 1) / PANEL<T>;
            tile_logits(p, keys, b, i, rows, key, panels, logits.at);
            const bool hides = p.causal && key + panels * PANEL<T> - 1 > i;
            for (long r = 0; r < rows; ++r) {
                T* row = logits + r * KEYS;
                if (hides || slope != 0) place(row, i + r, key, panels * PANEL<T>, slope, hides);
                const long at = i + r - begin;
                soften<Kind<T>::TERMS>(row, panels * PANEL<T>, out + (i + r) * p.value, p.value, most[at],
                                       sums + at * LANES<T>);
            }
            accumulate(out + i * p.value, logits.at, KEYS, 1, p.v + (b * p.keys + key) * p.value, rows, seen, p.value);
        }
    }
    for (long i = begin; i < end; ++i) {
        const T share = finish_row(p, b * p.rows + i, most[i - begin], sums + (i - begin) * LANES<T>);
        for (long c = 0; c < p.value; ++c) out[i * p.value + c] *= share;
    }
}
