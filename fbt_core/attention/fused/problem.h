// What the kernels are given. All tensors are contiguous; b counts heads of all sequences, h = b % heads.
//
//     l_ij = dot_h q_i . k_j + column_j - slope_h |i - j|
//            - square_h (sum_a (U_ia . k_j - u_ia)^2 + sum_a (U_ja . q_i - w_ja)^2),   u = U^T q, w = U^T k
#pragma once

#include <atomic>
#include <thread>
#include <vector>

#include "lanes.h"

// T is what sums are made in, S what tokens and their gradients are held in.
template <class T, class S = T> struct Problem {
    const S *q, *k, *v;                      // (b, rows, width), (b, keys, width), (b, keys, value)
    const S *U;                              // (b, keys, width, rank)
    const T *column, *dot, *square, *slope;  // (b, keys), (heads), (heads), (heads) or null
    T *u, *w;                                // (b, rows, rank), (b, keys, rank)
    S* out;                                  // (b, rows, value)
    T* lse;                                  // (b, rows)
    const S* pull;                           // the output's gradient, (b, rows, value)
    const T* delta;                          // its product with out, (b, rows)
    S *dq, *dk, *dv, *dU;                    // like what they are the gradients of
    T *dcolumn, *ddot, *dsquare;             // likewise, and the last two (b)
    long b, heads, rows, keys, width, value, rank, causal, threads;
};

// work(unit) for every unit, each by one thread: what a unit computes does not depend on how many threads there are.
template <class F> bool share(long units, long threads, F work) {
    std::atomic<long> next{0};
    std::atomic<bool> failed{false};
    auto run = [&] {
        try {
            for (long unit; (unit = next++) < units;) work(unit);
        } catch (...) {
            failed = true;
        }
    };
    std::vector<std::thread> others;
    try {
        for (long t = 1; t < threads && t < units; ++t) others.emplace_back(run);
    } catch (...) {  // no more threads to be had: those that run do it all
    }
    run();
    for (auto& other : others) other.join();
    return !failed;
}

template <int R, class T, class S>
void project_ranks(T* to, const S* U, const S* x, long tokens, long width, long rank) {
    for (long t = 0; t < tokens; ++t, to += rank, U += width * rank, x += width) {
        T sum[R] = {};
        for (long c = 0; c < width; ++c)
#pragma GCC unroll 8
            for (int a = 0; a < R; ++a) sum[a] += T(U[c * rank + a]) * T(x[c]);
        for (int a = 0; a < R; ++a) to[a] = sum[a];
    }
}

// to (tokens, rank) = U^T x, token by token.
template <class T, class S>
void project(T* to, const S* U, const S* x, long tokens, long width, long rank) {
    long a = 0;
    for (; a + 8 <= rank; a += 8) project_ranks<8>(to + a, U + a, x, tokens, width, rank);
    for (; a + 4 <= rank; a += 4) project_ranks<4>(to + a, U + a, x, tokens, width, rank);
    for (; a < rank; ++a) project_ranks<1>(to + a, U + a, x, tokens, width, rank);
}
