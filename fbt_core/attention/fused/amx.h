// The forward pass for numbers that bfloat16 holds exactly, on the matrix unit of x86 processors that have one (AMX):
// tiles of 16 x 32 such numbers, sums in float32. Elsewhere ``half_forward`` says that it did nothing.
#pragma once

#include "forward.h"

#if defined(__AMX_BF16__) && defined(__AMX_TILE__) && defined(__AVX512F__) && defined(__linux__)
#include <cstring>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

constexpr long SIDE = 32;  // of the square that one product makes: 2 x 2 of the unit's tiles
constexpr long SQUARE = SIDE * SIDE;

inline bool permitted() {  // the kernel of Linux lends the unit to a process that asks
    static const bool given = syscall(SYS_arch_prctl, 0x1023 /* ARCH_REQ_XCOMP_PERM */, 18 /* XTILEDATA */) == 0;
    return given;
}

struct Unit {  // the matrix unit in this thread, all tiles 16 rows of 64 bytes
    Unit() {
        alignas(64) unsigned char shape[64] = {1};
        for (int tile = 0; tile < 8; ++tile) shape[16 + 2 * tile] = 64, shape[48 + tile] = 16;
        _tile_loadconfig(shape);
    }
    ~Unit() { _tile_release(); }
};

// Two neighbours of a row, as one word: the upper halves of two float32, whose lower halves are 0.
INLINE uint32_t two(float first, float second) {
    uint32_t low, high;
    std::memcpy(&low, &first, 4), std::memcpy(&high, &second, 4);
    return low >> 16 | (high & 0xffff0000u);
}

// c (SIDE, SIDE; ldc) = a b, or c += a b. a: rows of words, lda apart. b: words (depth pair, column), ldb apart, its
// second 16 columns from ``other`` on.
template <bool MORE>
INLINE void square_product(float* c, long ldc, const uint32_t* a, long lda, const uint32_t* b, const uint32_t* other,
                           long ldb, long pairs) {
    asm volatile("" ::: "memory");  // the loads below do not say what they read
    if (MORE) {
        _tile_loadd(0, c, ldc * 4);
        _tile_loadd(1, c + 16, ldc * 4);
        _tile_loadd(2, c + 16 * ldc, ldc * 4);
        _tile_loadd(3, c + 16 * ldc + 16, ldc * 4);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    for (long p = 0; p < pairs; p += 16) {
        _tile_loadd(4, a + p, lda * 4);
        _tile_loadd(6, b + p * ldb, ldb * 4);
        _tile_loadd(7, other + p * ldb, ldb * 4);
        _tile_loadd(5, a + 16 * lda + p, lda * 4);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, c, ldc * 4);
    _tile_stored(1, c + 16, ldc * 4);
    _tile_stored(2, c + 16 * ldc, ldc * 4);
    _tile_stored(3, c + 16 * ldc + 16, ldc * 4);
    asm volatile("" ::: "memory");
}

using Words = Room<uint32_t>;

// (tokens, width, ranks) to words (rank, room of tokens, width / 2); tokens from ``count`` to ``room`` are zero.
inline void rows_of_words(uint32_t* to, const float* from, long count, long room, long width, long ranks) {
    std::memset(to, 0, sizeof(uint32_t) * ranks * room * width / 2);
    for (long t = 0; t < count; ++t)
        for (long p = 0; p < width / 2; ++p, from += 2 * ranks)
            for (long a = 0; a < ranks; ++a) to[(a * room + t) * (width / 2) + p] = two(from[a], from[ranks + a]);
}

// Words (tokens, pairs) to (group of 16 tokens, pair, token of the group).
inline void columns_of_words(uint32_t* to, const uint32_t* from, long tokens, long pairs) {
    for (long group = 0; group < tokens; group += 16, to += 16 * pairs)
        for (long p = 0; p < pairs; ++p)
            for (long t = 0; t < 16; ++t) to[p * 16 + t] = from[(group + t) * pairs + p];
}

class HalfChunk {  // the queries ``begin`` to ``end`` of one head
    const Problem<float>& p;
    const long b, begin, end, pairs, room;
    Words q, U;                        // of the queries
    Words some, k, Uk, v, weights;     // of a block of keys, and of a tile
    Room<float> out, most, sum, logits, squares, column, w;

  public:
    HalfChunk(const Problem<float>& p, long b, long begin, long end)
        : p(p), b(b), begin(begin), end(end), pairs(p.width / 2), room((end - begin + SIDE - 1) / SIDE * SIDE),
          q(room * pairs), U(room * pairs * p.rank), some(KEYS * pairs * (p.rank + 1)), k(KEYS * pairs),
          Uk(KEYS * pairs * p.rank), v(KEYS / 2 * p.value), weights(SIDE * KEYS / 2), out(room * p.value), most(room),
          sum(room), logits(SIDE * KEYS), squares(SQUARE * (1 + 2 * p.rank)), column(KEYS), w(KEYS * p.rank) {}

    void run() {
        const Unit unit;
        rows_of_words(q, p.q + (b * p.rows + begin) * p.width, end - begin, room, p.width, 1);
        if (p.rank) rows_of_words(U, p.U + (b * p.keys + begin) * p.width * p.rank, end - begin, room, p.width, p.rank);
        for (long i = 0; i < room; ++i) most[i] = -std::numeric_limits<float>::infinity(), sum[i] = 0;
        for (long at = 0; at < room * p.value; ++at) out[at] = 0;
        for (long key = 0; key < (p.causal && end < p.keys ? end : p.keys); key += KEYS) {
            fill(key, p.keys - key < KEYS ? p.keys - key : KEYS);
            for (long i = p.causal && key > begin ? key : begin; i < end; i += SIDE) tile(i, key);
        }
        for (long i = begin; i < end; ++i) {
            p.lse[b * p.rows + i] = most[i - begin] + std::log(sum[i - begin]);
            const float share = 1 / sum[i - begin];
            float* to = p.out + (b * p.rows + i) * p.value;
            for (long c = 0; c < p.value; ++c) to[c] = share * out[(i - begin) * p.value + c];
        }
    }

  private:
    void fill(long key, long count) {
        const long at = b * p.keys + key;
        rows_of_words(some, p.k + at * p.width, count, KEYS, p.width, 1);
        columns_of_words(k, some, KEYS, pairs);
        if (p.rank) rows_of_words(some, p.U + at * p.width * p.rank, count, KEYS, p.width, p.rank);
        columns_of_words(Uk, some, KEYS * p.rank, pairs);
        for (long j = 0; j < KEYS; ++j) {
            column[j] = j < count ? p.column[at + j] : -std::numeric_limits<float>::infinity();
            for (long a = 0; a < p.rank; ++a) w[a * KEYS + j] = j < count ? p.w[(at + j) * p.rank + a] : 0;
        }
        for (long j = 0; j < KEYS; j += 2)
            for (long c = 0; c < p.value; ++c) {
                const float* value = p.v + (at + j) * p.value + c;
                v[j / 2 * p.value + c] = two(j < count ? value[0] : 0, j + 1 < count ? value[p.value] : 0);
            }
    }

    void tile(long i, long key) {
        const long last = i + SIDE - 1, left = p.causal && last - key + 1 < KEYS ? last - key + 1 : KEYS;
        const long seen = (left + SIDE - 1) / SIDE * SIDE;
        const float slope = p.slope ? p.slope[b % p.heads] : 0;
        const bool hides = p.causal && key + seen - 1 > i;
        for (long j = 0; j < seen; j += SIDE) square(i, j);
        for (long r = 0; r < SIDE; ++r) {
            float *row = logits + r * KEYS, *to = out + (i - begin + r) * p.value;
            if (hides || slope != 0) place(row, i + r, key, seen, slope, hides);
            soften(row, seen, to, p.value, most[i - begin + r], sum[i - begin + r]);
            for (long j = 0; j < seen; j += 32) {
                const __m512 low = _mm512_loadu_ps(row + j), high = _mm512_loadu_ps(row + j + 16);
                std::memcpy(weights + (r * KEYS + j) / 2, &(const __m512bh&)_mm512_cvtne2ps_pbh(high, low), 64);
            }
        }
        for (long c = 0; c < p.value; c += SIDE)
            square_product<true>(out + (i - begin) * p.value + c, p.value, weights, KEYS / 2, v + c, v + c + 16,
                                 p.value, seen / 2);
    }

    // The logits of the queries from ``i`` on with the keys from the block's ``j`` on.
    void square(long i, long j) {
        const uint32_t *queries = q + (i - begin) * pairs, *keys = k + j * pairs;
        square_product<false>(squares, SIDE, queries, pairs, keys, keys + 16 * pairs, 16, pairs);
        for (long a = 0; a < p.rank; ++a) {
            const uint32_t *Ui = U + (a * room + i - begin) * pairs, *Uj = Uk + (a * KEYS + j) * pairs;
            square_product<false>(squares + (1 + 2 * a) * SQUARE, SIDE, Ui, pairs, keys, keys + 16 * pairs, 16, pairs);
            square_product<false>(squares + (2 + 2 * a) * SQUARE, SIDE, queries, pairs, Uj, Uj + 16 * pairs, 16, pairs);
        }
        const float dot = p.dot[b % p.heads], strength = p.square[b % p.heads];
        for (long r = 0; r < SIDE; ++r) {
            const float* u = p.u + (b * p.rows + (i + r < end ? i + r : end - 1)) * p.rank;
            for (long n = 0; n < SIDE; n += LANES<float>) {
                const float* product = squares + r * SIDE + n;
                Vector<float> total = {};
                for (long a = 0; a < p.rank; ++a) {
                    const Vector<float> x = load(product + (1 + 2 * a) * SQUARE) - u[a];
                    const Vector<float> y = load(product + (2 + 2 * a) * SQUARE) - load(w + a * KEYS + j + n);
                    total += x * x + y * y;
                }
                store(logits + r * KEYS + j + n, dot * load(product) + load(column + j + n) - strength * total);
            }
        }
    }
};

inline bool half_forward(const Problem<float>& p) { return permitted() && p.width % SIDE == 0 && p.value % SIDE == 0; }
inline void half_chunk(const Problem<float>& p, long b, long begin, long end) { HalfChunk(p, b, begin, end).run(); }
#else
inline bool half_forward(const Problem<float>&) { return false; }
inline void half_chunk(const Problem<float>&, long, long, long) {}
#endif
