// The gradients, tile by tile of BLOCK x BLOCK, each logit computed again. With P the weights, X_ij = pull_i . v_j,
// D = P (X - delta), A_ija = U_ia . k_j - u_ia and B_ija = U_ja . q_i - w_ja:
//
//     dv_j = sum_i P_ij pull_i                    dU_ia = -2 square (sum_j D A_ija k_j + sum_i' D B_i'ia q_i') + ...
//     dq_i = dot sum_j D k_j - 2 square sum_ja D B_ija U_ja + sum_a U_ia du_ia,    du_ia = 2 square U_ia . sum_j D k_j
//     dk_j = dot sum_i D q_i - 2 square sum_ia D A_ija U_ia + sum_a U_ja dw_ja,    dw_ja = 2 square sum_i D B_ija
//
// (5 + 6 r) products of d numbers a pair, where standard attention has 5. One thread has one head: nothing is shared,
// so the same inputs give the same bits.
#pragma once

#include "forward.h"

constexpr long BLOCK = 64;

inline long least(long left) { return left < BLOCK ? left : BLOCK; }
template <class T> void clear(T* at, long count) { for (long n = 0; n < count; ++n) at[n] = 0; }

// Blocks of up to BLOCK tokens, (token, width, rank) <-> (rank, token, width).
template <class T> void ranks_first(T* to, const T* from, long tokens, long width, long rank) {
    for (long t = 0; t < tokens; ++t)
        for (long a = 0; a < rank; ++a)
            for (long c = 0; c < width; ++c) to[(a * tokens + t) * width + c] = from[(t * width + c) * rank + a];
}

template <class T> struct Head {
    const Problem<T>& p;
    const long b, d, r;
    const T dot, square, slope;
    const T *q, *k, *v, *u, *w, *pull, *lse, *delta, *column;
    T *dq, *dk, *dv, *dU, *dcolumn;
    Room<T> U;                  // of all tokens, ranks first within a block
    Room<T> Dk, dw;             // sum_j D_ij k_j, and sum_i D_ij B_ija, whose 2 square fold is the gradient of w
    Room<T> Dq, EU, DB;         // of the block of keys: sum_i D q_i, sum_ia D A U_ia, sum_i D B
    Room<T> kp, vp, Up;         // its panels
    Room<T> S, X, A, B;         // the tile: logits, then P; X, then D; the differences, then D times those

    Head(const Problem<T>& p, long b)
        : p(p), b(b), d(p.width), r(p.rank), dot(p.dot[b % p.heads]), square(p.square[b % p.heads]),
          slope(p.slope ? p.slope[b % p.heads] : T(0)), q(p.q + b * p.rows * d), k(p.k + b * p.keys * d),
          v(p.v + b * p.keys * p.value), u(p.u + b * p.rows * r), w(p.w + b * p.keys * r),
          pull(p.pull + b * p.rows * p.value), lse(p.lse + b * p.rows), delta(p.delta + b * p.rows),
          column(p.column + b * p.keys), dq(p.dq + b * p.rows * d), dk(p.dk + b * p.keys * d),
          dv(p.dv + b * p.keys * p.value), dU(p.dU + b * p.keys * d * r), dcolumn(p.dcolumn + b * p.keys),
          U(r * d * p.keys), Dk(p.rows * d), dw(p.keys * r), Dq(BLOCK * d), EU(BLOCK * d), DB(BLOCK * r),
          kp(BLOCK * d), vp(BLOCK * p.value), Up(BLOCK * d * r), S(BLOCK * BLOCK), X(BLOCK * BLOCK),
          A(BLOCK * BLOCK * r), B(BLOCK * BLOCK * r) {}

    void run() {
        clear(dq, p.rows * d), clear(Dk.at, p.rows * d), clear(dv, p.keys * p.value), clear(dU, p.keys * d * r);
        for (long j = 0; j < p.keys && r; j += BLOCK)
            ranks_first(U + j * d * r, p.U + (b * p.keys + j) * d * r, least(p.keys - j), d, r);
        for (long j = 0; j < p.keys; j += BLOCK) {
            begin_keys(j, least(p.keys - j));
            for (long i = p.causal ? j : 0; i < p.rows; i += BLOCK) tile(i, least(p.rows - i), j, least(p.keys - j));
            end_keys(j, least(p.keys - j));
        }
        finish();
    }

  private:

    void begin_keys(long j, long keys) {
        pack(kp.at, k + j * d, keys, BLOCK, d, 1);
        pack(vp.at, v + j * p.value, keys, BLOCK, p.value, 1);
        if (r) pack(Up.at, p.U + (b * p.keys + j) * d * r, keys, BLOCK, d, r);
        clear(Dq.at, BLOCK * d), clear(EU.at, BLOCK * d), clear(DB.at, BLOCK * r), clear(dcolumn + j, keys);
    }

    void tile(long i, long rows, long j, long keys) {
        const T *Ui = U + i * d * r, *Uj = U + j * d * r, *kj = k + j * d, *qi = q + i * d, *pi = pull + i * p.value;
        products(i, rows, j, keys);
        weights(i, rows, j, keys);
        accumulate(dv + j * p.value, S.at, 1, BLOCK, pi, keys, rows, p.value);
        accumulate(Dq.at, X.at, 1, BLOCK, qi, keys, rows, d);
        accumulate(Dk + i * d, X.at, BLOCK, 1, kj, rows, keys, d);
        for (long a = 0; a < r; ++a) {
            const T *DA = A + a * BLOCK * BLOCK, *DB = B + a * BLOCK * BLOCK;
            accumulate(EU.at, DA, 1, BLOCK, Ui + a * rows * d, keys, rows, d);
            accumulate(dU + i * d * r + a * rows * d, DA, BLOCK, 1, kj, rows, keys, d);
            accumulate(dq + i * d, DB, BLOCK, 1, Uj + a * keys * d, rows, keys, d);
            accumulate(dU + j * d * r + a * keys * d, DB, 1, BLOCK, qi, keys, rows, d);
        }
    }

    // S: the logits. X: pull_i . v_j. A and B: the differences of images.
    void products(long i, long rows, long j, long keys) {
        const T* Ui = U + i * d * r;
        for (long at = 0, panel = 0; at < keys; at += PANEL<T>, ++panel) {
            T own[PANEL<T>];
            for (long n = 0; n < PANEL<T>; ++n)
                own[n] = at + n < keys ? column[j + at + n] : -std::numeric_limits<T>::infinity();
            with_panel(q + i * d, rows, d, kp + panel * d * PANEL<T>, [&](long row, Vector<T>(&sum)[VECTORS]) {
                for (int n = 0; n < VECTORS; ++n)
                    store(S + row * BLOCK + at + n * LANES<T>, dot * sum[n] + load(own + n * LANES<T>));
            });
            with_panel(pull + i * p.value, rows, p.value, vp + panel * p.value * PANEL<T>,
                       [&](long row, Vector<T>(&sum)[VECTORS]) {
                for (int n = 0; n < VECTORS; ++n) store(X + row * BLOCK + at + n * LANES<T>, sum[n]);
            });
            for (long a = 0; a < r; ++a) {
                T *As = A + a * BLOCK * BLOCK + at, *Bs = B + a * BLOCK * BLOCK + at;
                with_panel(Ui + a * rows * d, rows, d, kp + panel * d * PANEL<T>,
                           [&](long row, Vector<T>(&sum)[VECTORS]) {
                    const T own_image = u[(i + row) * r + a];
                    for (int n = 0; n < VECTORS; ++n)
                        subtract(row, at + n * LANES<T>, sum[n] - own_image, As + row * BLOCK + n * LANES<T>);
                });
                for (long n = 0; n < PANEL<T>; ++n) own[n] = at + n < keys ? w[(j + at + n) * r + a] : T(0);
                with_panel(q + i * d, rows, d, Up + (a * (BLOCK / PANEL<T>) + panel) * d * PANEL<T>,
                           [&](long row, Vector<T>(&sum)[VECTORS]) {
                    for (int n = 0; n < VECTORS; ++n) {
                        const Vector<T> difference = sum[n] - load(own + n * LANES<T>);
                        subtract(row, at + n * LANES<T>, difference, Bs + row * BLOCK + n * LANES<T>);
                    }
                });
            }
        }
    }

    INLINE void subtract(long row, long at, Vector<T> difference, T* kept) {
        T* logit = S + row * BLOCK + at;
        store(logit, load(logit) - square * (difference * difference));
        store(kept, difference);
    }

    // S becomes P, X becomes D, A and B are multiplied by D; the sums over queries of D and D B go where they belong.
    void weights(long i, long rows, long j, long keys) {
        const long width = (keys + PANEL<T> - 1) / PANEL<T> * PANEL<T>;
        const bool hides = p.causal && j + width - 1 > i;
        Room<T> sums(BLOCK);
        clear(sums.at, BLOCK);
        for (long row = 0; row < rows; ++row) {
            T *s = S + row * BLOCK, *x = X + row * BLOCK;
            if (hides || slope != 0) place(s, i + row, j, width, slope, hides);
            for (long at = 0; at < width; at += LANES<T>) {
                const Vector<T> weight = exponential<T>(load(s + at) - lse[i + row]);
                const Vector<T> change = weight * (load(x + at) - delta[i + row]);
                store(s + at, weight), store(x + at, change), store(sums + at, load(sums + at) + change);
            }
        }
        for (long n = 0; n < keys; ++n) dcolumn[j + n] += sums[n];
        for (long a = 0; a < r; ++a) {
            T *As = A + a * BLOCK * BLOCK, *Bs = B + a * BLOCK * BLOCK;
            for (long at = 0; at < width; at += LANES<T>) {
                Vector<T> of_keys = {};
                for (long row = 0; row < rows; ++row) {
                    const long here = row * BLOCK + at;
                    const Vector<T> change = load(X + here), b = load(Bs + here) * change;
                    store(As + here, load(As + here) * change), store(Bs + here, b);
                    of_keys += b;
                }
                store(DB + a * BLOCK + at, load(DB + a * BLOCK + at) + of_keys);
            }
        }
    }

    void end_keys(long j, long keys) {
        for (long n = 0; n < keys; ++n) {
            T* to = dk + (j + n) * d;
            for (long c = 0; c < d; ++c) to[c] = dot * Dq[n * d + c] - 2 * square * EU[n * d + c];
            for (long a = 0; a < r; ++a) {
                const T* Ua = U + j * d * r + (a * keys + n) * d;
                const T pulled = 2 * square * (dw[(j + n) * r + a] = DB[a * BLOCK + n]);
                for (long c = 0; c < d; ++c) to[c] += pulled * Ua[c];
            }
        }
    }

    void finish() {
        T of_dot = 0, of_square = 0;
        Room<T> whole(BLOCK * d * r);
        for (long first = 0; first < p.rows; first += BLOCK) {
            const long tokens = least(p.rows - first);
            for (long t = 0; t < tokens; ++t) {
                const long i = first + t;
                T *to = dq + i * d, inner = 0;
                for (long c = 0; c < d; ++c) {
                    inner += q[i * d + c] * Dk[i * d + c];
                    to[c] = dot * Dk[i * d + c] - 2 * square * to[c];
                }
                of_dot += inner;
                for (long a = 0; a < r; ++a) of_square += finish_rank(i, a, (a * tokens + t) * d + first * d * r);
            }
            for (long n = 0; n < tokens * d * r; ++n) whole[n] = dU[first * d * r + n];
            for (long t = 0; t < tokens && r; ++t)
                for (long c = 0; c < d; ++c)
                    for (long a = 0; a < r; ++a) dU[((first + t) * d + c) * r + a] = whole[(a * tokens + t) * d + c];
        }
        p.ddot[b] = of_dot, p.dsquare[b] = of_square;
    }

    // The gradient of one column of U, which stands at ``at``; what this column adds to dq_i; and its share of dsquare.
    T finish_rank(long i, long a, long at) {
        const T *Ua = U + at, of_key = 2 * square * dw[i * r + a];
        T pulled = 0, inner = 0;
        for (long c = 0; c < d; ++c) pulled += Ua[c] * Dk[i * d + c], inner += Ua[c] * dU[at + c];
        const T of_query = 2 * square * pulled;
        for (long c = 0; c < d; ++c) {
            dq[i * d + c] += of_query * Ua[c];
            dU[at + c] = of_query * q[i * d + c] + of_key * k[i * d + c] - 2 * square * dU[at + c];
        }
        return u[i * r + a] * pulled + w[i * r + a] * dw[i * r + a] - inner;
    }
};
