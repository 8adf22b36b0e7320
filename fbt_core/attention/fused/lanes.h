// Vectors of the machine, and the one loop that all products go through.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <new>
#include <type_traits>

#define INLINE inline __attribute__((always_inline))

// Registers hold ROWS x VECTORS sums, VECTORS of the right factor and one number of the left.
#if defined(__AVX512F__)
constexpr int BYTES = 64, VECTORS = 4;
#elif defined(__AVX__)
constexpr int BYTES = 32, VECTORS = 2;
#elif defined(__aarch64__)
constexpr int BYTES = 16, VECTORS = 4;
#else
constexpr int BYTES = 16, VECTORS = 2;
#endif
constexpr int ROWS = 6;

template <class T> struct Kind;
template <> struct Kind<float> {
    typedef float Vector __attribute__((vector_size(BYTES)));
    typedef float Memory __attribute__((vector_size(BYTES), aligned(4), may_alias));
    typedef int32_t Integer;
    typedef int32_t Integers __attribute__((vector_size(BYTES)));
    static constexpr int MANTISSA = 23, BIAS = 127, TERMS = 7;
};
template <> struct Kind<double> {
    typedef double Vector __attribute__((vector_size(BYTES)));
    typedef double Memory __attribute__((vector_size(BYTES), aligned(8), may_alias));
    typedef int64_t Integer;
    typedef int64_t Integers __attribute__((vector_size(BYTES)));
    static constexpr int MANTISSA = 52, BIAS = 1023, TERMS = 13;
};
template <class T> using Vector = typename Kind<T>::Vector;
template <class T> constexpr int LANES = BYTES / sizeof(T);
template <class T> constexpr int PANEL = VECTORS * LANES<T>;  // columns that one pass of the product makes

template <class T> INLINE Vector<T> load(const T* from) { return *(const typename Kind<T>::Memory*)from; }
template <class T> INLINE void store(T* to, Vector<T> x) { *(typename Kind<T>::Memory*)to = x; }
template <class T> INLINE Vector<T> splat(T x) { return x - Vector<T>{}; }
template <class T> INLINE Vector<T> larger(Vector<T> a, Vector<T> b) { return a > b ? a : b; }

template <class T, int HALF> INLINE Vector<T> swapped(Vector<T> x) {  // each lane for the one HALF away
#ifdef __clang__  // sees through the loop, which GCC does not, and has no such builtin
    Vector<T> other = x;
    for (int lane = 0; lane < LANES<T>; ++lane) other[lane] = x[lane ^ HALF];
    return other;
#else
    typename Kind<T>::Integers from = {};
    for (int lane = 0; lane < LANES<T>; ++lane) from[lane] = lane ^ HALF;
    return __builtin_shuffle(x, from);
#endif
}

// One number of all lanes: join(x, y) of halves, of quarters and so on.
template <class T, int HALF = LANES<T> / 2, class F> INLINE T folded(Vector<T> x, F join) {
    x = join(x, swapped<T, HALF>(x));
    if constexpr (HALF > 1) return folded<T, HALF / 2>(x, join);
    else return x[0];
}
template <class T> INLINE T total(Vector<T> x) { return folded<T>(x, [](auto a, auto b) { return a + b; }); }
template <class T> INLINE T largest(Vector<T> x) {
    return folded<T>(x, [](auto a, auto b) { return larger<T>(a, b); });
}

template <class T> constexpr T inverse_factorial(int n) { return n < 2 ? T(1) : inverse_factorial<T>(n - 1) / T(n); }

// e^x for x <= 0: 2^n times the Taylor series on [-ln 2 / 2, ln 2 / 2], below half a unit of the last place with all
// TERMS, and 2.4e-6 of the result with ROUGH ones. What is too small for a normal number is 0.
constexpr int ROUGH = 5;
template <class T, int TERMS = Kind<T>::TERMS> INLINE Vector<T> exponential(Vector<T> x) {
    using K = Kind<T>;
    constexpr T magic = T(3) * (typename K::Integer(1) << (K::MANTISSA - 1));  // adding it rounds to an integer
    constexpr T least = -T(0.69) * (K::BIAS - 1);
    constexpr T high = sizeof(T) == 4 ? T(0.693359375) : T(0.693145751953125), low = T(0.69314718055994530942L - high);
    const Vector<T> shifted = x * T(1.44269504088896340736L) + magic, n = shifted - magic;
    const Vector<T> rest = (x - n * high) - n * low;
    Vector<T> sum = splat(inverse_factorial<T>(TERMS));
#pragma GCC unroll 16
    for (int term = TERMS - 1; term >= 0; --term) sum = sum * rest + inverse_factorial<T>(term);
    typename K::Integers power = (typename K::Integers)shifted << K::MANTISSA;
    const typename K::Integers one = (typename K::Integers)splat<T>(1);
    const Vector<T> result = sum * (Vector<T>)(one + power);
    return x < least ? Vector<T>{} : result;
}

template <int R, int N, class T>
INLINE void multiply(const T* const (&a)[R], long step, const T* b, long stride, long depth, Vector<T> (&sum)[R][N]) {
    for (long k = 0, at = 0; k < depth; ++k, at += step, b += stride) {
        Vector<T> right[N];
#pragma GCC unroll 8
        for (int n = 0; n < N; ++n) right[n] = load(b + n * LANES<T>);
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
            const Vector<T> left = splat(a[r][at]);
#pragma GCC unroll 8
            for (int n = 0; n < N; ++n) sum[r][n] += left * right[n];
        }
    }
}

template <int R> using Count = std::integral_constant<int, R>;

// f(first row, how many) over all rows, ROWS at a time and then what is left.
template <class F> INLINE void by_rows(long rows, F f) {
    long i = 0;
    for (; i + ROWS <= rows; i += ROWS) f(i, Count<ROWS>{});
    switch (rows - i) {
        case 1: return f(i, Count<1>{});
        case 2: return f(i, Count<2>{});
        case 3: return f(i, Count<3>{});
        case 4: return f(i, Count<4>{});
        case 5: return f(i, Count<5>{});
    }
}

// finish(row, sums of that row with the panel's columns) for every row of a (rows, depth); the panel is (depth, PANEL).
template <class T, class F> INLINE void with_panel(const T* a, long rows, long depth, const T* panel, F finish) {
    by_rows(rows, [&](long i, auto count) {
        constexpr int R = decltype(count)::value;
        const T* left[R];
        Vector<T> sum[R][VECTORS] = {};
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) left[r] = a + (i + r) * depth;
        multiply(left, 1, panel, PANEL<T>, depth, sum);
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) finish(i + r, sum[r]);
    });
}

template <int N, class T>
void strip(T* c, long ldc, const T* a, long row, long step, const T* b, long ldb, long rows, long depth) {
    by_rows(rows, [&](long i, auto count) {
        constexpr int R = decltype(count)::value;
        const T* left[R];
        Vector<T> sum[R][N];
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
            left[r] = a + (i + r) * row;
#pragma GCC unroll 8
            for (int n = 0; n < N; ++n) sum[r][n] = load(c + (i + r) * ldc + n * LANES<T>);
        }
        multiply(left, step, b, ldb, depth, sum);
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
            for (int n = 0; n < N; ++n) store(c + (i + r) * ldc + n * LANES<T>, sum[r][n]);
        }
    });
}

// c (rows, width) += a b. a's entries (i, k) stand at i * row + k * step; b is (depth, width). Width in whole vectors.
template <class T>
void accumulate(T* c, const T* a, long row, long step, const T* b, long rows, long depth, long width) {
    long at = 0;
    for (; at + VECTORS * LANES<T> <= width; at += VECTORS * LANES<T>)
        strip<VECTORS>(c + at, width, a, row, step, b + at, width, rows, depth);
    switch ((width - at) / LANES<T>) {
        case 1: return strip<1>(c + at, width, a, row, step, b + at, width, rows, depth);
        case 2: return strip<2>(c + at, width, a, row, step, b + at, width, rows, depth);
        case 3: return strip<3>(c + at, width, a, row, step, b + at, width, rows, depth);
    }
}

// Scratch space on a cache line.
template <class T> struct Room {
    T* at;
    explicit Room(long count) : at((T*)std::aligned_alloc(64, (count * sizeof(T) + 127) / 64 * 64)) {
        if (!at) throw std::bad_alloc();
    }
    ~Room() { std::free(at); }
    Room(const Room&) = delete;
    operator T*() const { return at; }
};

// Rows (tokens, width * ranks), ranks fastest, to panels: (rank, block of PANEL tokens, width, token of the block).
// Tokens from ``count`` to ``room`` are zero.
template <class T>
void pack(T* to, const T* from, long count, long room, long width, long ranks) {
    constexpr long P = PANEL<T>, MORE = 16, EDGE = P < MORE ? P : MORE;  // numbers of a token, and tokens, at a time
    static_assert(P % EDGE == 0, "a square of the transposition lies in one panel");
    const long whole = room / P * width * P;
    for (long block = 0; block < room; block += EDGE) {
        T* start = to + block / P * width * P + block % P;
        for (long c = 0, a = 0, e = 0; e < width * ranks; e += MORE) {
            const long more = width * ranks - e < MORE ? width * ranks - e : MORE;
            for (long x = 0; x < more; ++x) {
                T* line = start + a * whole + c * P;
                for (long j = 0; j < EDGE; ++j)
                    line[j] = block + j < count ? from[(block + j) * width * ranks + e + x] : T(0);
                if (++a == ranks) a = 0, ++c;
            }
        }
    }
}
