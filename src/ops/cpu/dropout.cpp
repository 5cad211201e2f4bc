#include "ops/kernels/step/dropout.h"

#include "base/parallel.h"
#include "ops/cpu/dispatch.h"
#include "ops/cpu/dropout_mask.h"

namespace seqfuse::ops {
namespace {

constexpr int64_t kChunk = 2048;  // factors drawn at once; they fit in L1

template <class T>
void forward(const DropoutParams& params) {
  const cpu::DropoutMask<T> mask(params.seed.value, params.p);
  const int64_t chunks = (params.count + kChunk - 1) / kChunk;
  parallel_for(chunks, 8, [&](int64_t begin, int64_t end) {
    T factors[kChunk];
    for (int64_t chunk = begin; chunk < end; ++chunk) {
      const int64_t first = chunk * kChunk, n = std::min(kChunk, params.count - first);
      const T* x = static_cast<const T*>(params.x) + first;
      T* y = static_cast<T*>(params.y) + first;
      mask.draw(first, n, factors);
#pragma omp simd
      for (int64_t e = 0; e < n; ++e) y[e] = x[e] * factors[e];
    }
  });
}

}  // namespace

void dropout_forward_cpu(const DropoutParams& params, DType dtype) {
  cpu::dispatch(dtype, [&](auto zero) { forward<decltype(zero)>(params); });
}

}  // namespace seqfuse::ops
