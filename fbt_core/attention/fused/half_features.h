// The features of a dictionary's metrics in bfloat16, each token read once: a = B^T q, b = B^T k, summed in float32,
//
//     [q, w a, a, w, - a^2 / 2] . [k, b, w b, - b^2 / 2, w],   column = along sum w (- b^2 / 2) - share ||k||^2
#pragma once

#include "half.h"
#include "problem.h"

#ifdef MATRIX_UNIT
struct Dictionary {                            // width and count in sixteens
    const Half *q, *k, *w;                     // (b, tokens, width), (b, tokens, width), (b, tokens, count)
    const float *atoms, *along, *share;        // (heads, width, count), (heads), (heads)
    Half *queries, *keys;                      // (b, tokens, width + 4 count)
    float* column;                             // (b, tokens)
    long b, heads, tokens, width, count, threads;
    long centred;                              // whether the keys' mean is taken off q and k
};

class HalfFeatures {
    static constexpr long SOME = 48;  // tokens at a time
    const Dictionary& p;
    const long b, d, m;
    Room<float> centre, x, y;  // x is some tokens, y their products with the atoms

  public:
    HalfFeatures(const Dictionary& p, long b)
        : p(p), b(b), d(p.width), m(p.count), centre(d), x(SOME * d), y(SOME * m) {}

    void run() {
        for (long c = 0; c < d; ++c) centre[c] = 0;
        for (long t = 0; t < p.tokens && p.centred; ++t)
            for (long c = 0; c < d; c += 16)
                store(centre + c, load(centre + c) + (Vector<float>)load_halves(p.k + (b * p.tokens + t) * d + c));
        for (long c = 0; c < d; ++c) centre[c] /= p.tokens;
        for (long t = 0; t < p.tokens; t += SOME) {
            const long more = p.tokens - t < SOME ? p.tokens - t : SOME;
            const long width = d + 4 * m, at = b * p.tokens + t;
            images(p.queries + at * width, p.q + at * d, more);
            for (long n = 0; n < more; ++n) query(p.queries + (at + n) * width + d, y + n * m, p.w + (at + n) * m);
            images(p.keys + at * width, p.k + at * d, more);
            for (long n = 0; n < more; ++n) {
                const float of_atoms = key(p.keys + (at + n) * width + d, y + n * m, p.w + (at + n) * m);
                p.column[at + n] = p.along[b % p.heads] * of_atoms - p.share[b % p.heads] * square(x + n * d);
            }
        }
    }

  private:
    // x: the tokens, centred and rounded, which are the first features too. y: their products with the atoms.
    void images(Half* to, const Half* from, long tokens) {
        for (long t = 0; t < tokens; ++t, to += d + 4 * m, from += d)
            for (long c = 0; c < d; c += 16) {
                store_halves(to + c, load_halves(from + c) - _mm512_load_ps(centre + c));
                _mm512_store_ps(x + t * d + c, load_halves(to + c));
            }
        for (long at = 0; at < tokens * m; ++at) y[at] = 0;
        accumulate(y.at, x.at, d, 1, p.atoms + b % p.heads * d * m, tokens, d, m);
    }

    void query(Half* to, const float* image, const Half* weights) const {
        for (long c = 0; c < m; c += 16, to += 16) {
            const __m512 a = _mm512_loadu_ps(image + c), w = load_halves(weights + c);
            store_halves(to, w * a), store_halves(to + m, a);
            store_halves(to + 2 * m, w), store_halves(to + 3 * m, -0.5f * a * a);
        }
    }

    float key(Half* to, const float* image, const Half* weights) const {
        __m512 sum = _mm512_setzero_ps();
        for (long c = 0; c < m; c += 16, to += 16) {
            const __m512 b = _mm512_loadu_ps(image + c), w = load_halves(weights + c), half = -0.5f * b * b;
            store_halves(to, b), store_halves(to + m, w * b);
            store_halves(to + 2 * m, half), store_halves(to + 3 * m, w);
            sum += w * half;
        }
        return total<float>((Vector<float>)sum);
    }

    float square(const float* from) const {
        __m512 sum = _mm512_setzero_ps();
        for (long c = 0; c < d; c += 16) sum += _mm512_loadu_ps(from + c) * _mm512_loadu_ps(from + c);
        return total<float>((Vector<float>)sum);
    }
};
#endif
