// Products of bfloat16 numbers, summed in float32, on the matrix unit of x86 processors that have one (AMX), which
// takes two neighbours as one word of 32 bits. Without the unit there is no MATRIX_UNIT, and none of what follows.
#pragma once

#include <cstring>

#include "lanes.h"

struct Half {  // the upper half of a float32
    uint16_t bits;
    operator float() const {
        const uint32_t word = uint32_t(bits) << 16;
        float x;
        std::memcpy(&x, &word, 4);
        return x;
    }
};

#if defined(__AMX_BF16__) && defined(__AMX_TILE__) && defined(__AVX512BF16__) && defined(__linux__)
#define MATRIX_UNIT
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

constexpr long SIDE = 32;  // of the square that one product makes: 2 x 2 of the unit's tiles

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

using Words = Room<uint32_t>;

struct Left {  // rows of words, ``stride`` apart
    const uint32_t* at;
    long stride;
};
struct Right {  // words (pair, column), pairs ``stride`` apart; the second 16 columns stand ``other`` words further
    const uint32_t* at;
    long stride, other;
};

// c (SIDE, SIDE; ldc) = a b, or c += a b, a sum over 2 ``pairs`` numbers.
template <bool MORE> INLINE void product(float* c, long ldc, Left a, Right b, long pairs) {
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
        _tile_loadd(4, a.at + p, a.stride * 4);
        _tile_loadd(6, b.at + p * b.stride, b.stride * 4);
        _tile_loadd(7, b.at + b.other + p * b.stride, b.stride * 4);
        _tile_loadd(5, a.at + 16 * a.stride + p, a.stride * 4);
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

// 16 neighbours of a row, and of the row below, as words of two neighbours in a column.
INLINE void store_pairs(uint32_t* to, __m512 above, __m512 below) {
    alignas(64) static constexpr uint16_t order[32] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                                       8,  24, 9,  25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    const __m512i both = (__m512i)_mm512_cvtne2ps_pbh(below, above);
    _mm512_storeu_si512(to, _mm512_permutexvar_epi16(_mm512_load_si512(order), both));
}

// 32 neighbours of a row as words.
INLINE void store_row(uint32_t* to, __m512 first, __m512 second) {
    _mm512_storeu_si512(to, (__m512i)_mm512_cvtne2ps_pbh(second, first));
}

INLINE Half rounded(float x) {
    const uint16_t bits = (uint16_t)_mm_extract_epi16((__m128i)_mm_cvtneps_pbh(_mm_set_ss(x)), 0);
    return {bits};
}
INLINE __m512 load_halves(const Half* from) {
    return (__m512)(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)from)) << 16);
}
INLINE void store_halves(Half* to, __m512 x) { _mm256_storeu_si256((__m256i*)to, (__m256i)_mm512_cvtneps_pbh(x)); }

// Rows (tokens, width) as they are; tokens from ``count`` to ``room`` are zero.
inline void rows_of_words(uint32_t* to, const Half* from, long count, long room, long width) {
    std::memcpy(to, from, sizeof(Half) * count * width);
    std::memset(to + count * width / 2, 0, sizeof(Half) * (room - count) * width);
}

// (tokens, width, ranks) to rows (rank, room, width); tokens from ``count`` to ``room`` are zero.
inline void rows_of_ranks(uint32_t* to, const Half* from, long count, long room, long width, long ranks) {
    const long pairs = width / 2;
    for (long a = 0; a < ranks; ++a)
        std::memset(to + (a * room + count) * pairs, 0, sizeof(uint32_t) * (room - count) * pairs);
    for (long t = 0; t < count; ++t)
        for (long p = 0; p < pairs; ++p, from += 2 * ranks)
            for (long a = 0; a < ranks; ++a)
                to[(a * room + t) * pairs + p] = from[a].bits | uint32_t(from[ranks + a].bits) << 16;
}

// Rows (tokens, width) to words (pair of tokens, column).
inline void pairs_of_rows(uint32_t* to, const uint32_t* rows, long tokens, long width) {
    typedef uint16_t Short __attribute__((may_alias));
    for (long t = 0; t < tokens; t += 2, to += width, rows += width) {
        const Short *above = (const Short*)rows, *below = above + width;
        for (long c = 0; c < width; ++c) to[c] = above[c] | uint32_t(below[c]) << 16;
    }
}

template <int HALF> INLINE void swap_corners(__m512i (&row)[16]) {
    const __m512i lane = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    const __mmask16 right = _mm512_test_epi32_mask(lane, _mm512_set1_epi32(HALF));
    const __m512i up = _mm512_mask_add_epi32(lane, right, lane, _mm512_set1_epi32(16 - HALF));
    const __m512i down = _mm512_mask_add_epi32(_mm512_add_epi32(lane, _mm512_set1_epi32(HALF)), right, lane,
                                               _mm512_set1_epi32(16));
#pragma GCC unroll 16
    for (int r = 0; r < 16; ++r) {
        if (r & HALF) continue;
        const __m512i upper = row[r], lower = row[r + HALF];
        row[r] = _mm512_permutex2var_epi32(upper, up, lower);
        row[r + HALF] = _mm512_permutex2var_epi32(upper, down, lower);
    }
}

// Words (16, columns), rows ``from_stride`` apart, to (columns, 16), rows ``stride`` apart. Columns in sixteens.
inline void turn(uint32_t* to, long stride, const uint32_t* from, long from_stride, long columns) {
    for (long c = 0; c < columns; c += 16) {
        __m512i row[16];
#pragma GCC unroll 16
        for (int r = 0; r < 16; ++r) row[r] = _mm512_loadu_si512(from + r * from_stride + c);
        swap_corners<8>(row);
        swap_corners<4>(row);
        swap_corners<2>(row);
        swap_corners<1>(row);
#pragma GCC unroll 16
        for (int r = 0; r < 16; ++r) _mm512_storeu_si512(to + (c + r) * stride, row[r]);
    }
}

// Rows (tokens, pair) to columns (group of 16 tokens, pair, token of the group).
inline void columns_of_rows(uint32_t* to, const uint32_t* rows, long tokens, long pairs) {
    for (long t = 0; t < tokens; t += 16) turn(to + t * pairs, 16, rows + t * pairs, pairs, pairs);
}

// Where a square of SIDE columns begins in what ``columns_of_rows`` made, and in what ``pairs_of_rows`` made.
INLINE Right of_columns(const uint32_t* at, long pairs) { return {at, 16, 16 * pairs}; }
INLINE Right of_pairs(const uint32_t* at, long width) { return {at, width, 16}; }
#endif
