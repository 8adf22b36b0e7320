// The entry points for each kind of number, for ctypes. Each kernel returns 0, or 1 when memory ran out.
#include "amx.h"
#include "backward.h"
#include "forward.h"

template <class T> void chunk(const Problem<T>& p, long b, long begin, long end) {
    if constexpr (std::is_same<T, float>::value) {
        if (p.half && half_forward(p)) return half_chunk(p, b, begin, end);
    }
    attend_chunk(p, b, begin, end);
}

template <class T> bool forward(const Problem<T>& p) {
    const bool projected = share(p.rank ? p.b : 0, p.threads, [&](long b) {
        const T* U = p.U + b * p.keys * p.width * p.rank;
        project(p.u + b * p.rows * p.rank, U, p.q + b * p.rows * p.width, p.rows, p.width, p.rank);
        project(p.w + b * p.keys * p.rank, U, p.k + b * p.keys * p.width, p.keys, p.width, p.rank);
    });
    const long chunks = (p.rows + CHUNK - 1) / CHUNK;
    return projected && share(p.b * chunks, p.threads, [&](long unit) {
        // the last chunk of a causal sequence costs most: it goes first, so that no thread waits for it at the end
        const long begin = (chunks - 1 - unit / p.b) * CHUNK;
        chunk(p, unit % p.b, begin, begin + CHUNK < p.rows ? begin + CHUNK : p.rows);
    });
}

template <class T> bool backward(const Problem<T>& p) {
    return share(p.b, p.threads, [&](long b) { Head<T>(p, b).run(); });
}

extern "C" {
int fiberscope_lanes_float32() { return LANES<float>; }
int fiberscope_lanes_float64() { return LANES<double>; }
int fiberscope_forward_float32(const Problem<float>* p) { return !forward(*p); }
int fiberscope_forward_float64(const Problem<double>* p) { return !forward(*p); }
int fiberscope_backward_float32(const Problem<float>* p) { return !backward(*p); }
int fiberscope_backward_float64(const Problem<double>* p) { return !backward(*p); }
}
