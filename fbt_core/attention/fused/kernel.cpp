// The entry points for each kind of number, for ctypes. Each kernel returns 0, or 1 when memory ran out.
#include "backward.h"
#include "forward.h"
#include "half_backward.h"
#include "half_features.h"
#include "half_forward.h"

template <class T, class S> bool project_all(const Problem<T, S>& p) {
    return share(p.rank ? p.b : 0, p.threads, [&](long b) {
        const S* U = p.U + b * p.keys * p.width * p.rank;
        project(p.u + b * p.rows * p.rank, U, p.q + b * p.rows * p.width, p.rows, p.width, p.rank);
        project(p.w + b * p.keys * p.rank, U, p.k + b * p.keys * p.width, p.keys, p.width, p.rank);
    });
}

// attend(head, first query, last query and 1) for all of them.
template <class T, class S, class F> bool forward(const Problem<T, S>& p, F attend) {
    const long chunks = (p.rows + CHUNK - 1) / CHUNK;
    return project_all(p) && share(p.b * chunks, p.threads, [&](long unit) {
        // the last chunk of a causal sequence costs most: it goes first, so that no thread waits for it at the end
        const long begin = (chunks - 1 - unit / p.b) * CHUNK;
        attend(unit % p.b, begin, begin + CHUNK < p.rows ? begin + CHUNK : p.rows);
    });
}

template <class T> bool forward(const Problem<T>& p) {
    return forward(p, [&](long b, long begin, long end) { attend_chunk(p, b, begin, end); });
}

template <class Head, class P> bool backward(const P& p) {
    return share(p.b, p.threads, [&](long b) { Head(p, b).run(); });
}

extern "C" {
int fiberscope_lanes_float32() { return LANES<float>; }
int fiberscope_lanes_float64() { return LANES<double>; }
int fiberscope_forward_float32(const Problem<float>* p) { return !forward(*p); }
int fiberscope_forward_float64(const Problem<double>* p) { return !forward(*p); }
int fiberscope_backward_float32(const Problem<float>* p) { return !backward<Head<float>>(*p); }
int fiberscope_backward_float64(const Problem<double>* p) { return !backward<Head<double>>(*p); }
#ifdef MATRIX_UNIT
int fiberscope_lanes_bfloat16() { return permitted() ? SIDE : 0; }
int fiberscope_forward_bfloat16(const HalfProblem* p) {
    return !forward(*p, [&](long b, long begin, long end) { HalfChunk(*p, b, begin, end).run(); });
}
int fiberscope_backward_bfloat16(const HalfProblem* p) { return !backward<HalfHead>(*p); }
int fiberscope_features_bfloat16(const Dictionary* p) {
    return !share(p->b, p->threads, [&](long b) { HalfFeatures(*p, b).run(); });
}
#else
int fiberscope_lanes_bfloat16() { return 0; }
#endif
}
