#include "ops/kernels/jagged/encoding.h"

#include <algorithm>

#include "base/parallel.h"
#include "ops/cpu/dispatch.h"
#include "ops/cpu/row_loop.h"
#include "ops/kernels/jagged/row_sums.h"
#include "ops/kernels/jagged/time_row.h"

namespace seqfuse::ops {
namespace {

template <class T>
void forward(const EncodingParams& params) {
  const T scale = static_cast<T>(params.scale);
  cpu::for_each_row(params.tokens, params.dim, [&](int64_t i) {
    const T* x = static_cast<const T*>(params.x) + i * params.x_stride;
    const T* row = static_cast<const T*>(params.table) + params.index[i] * params.table_stride;
    T* y = static_cast<T*>(params.y) + i * params.y_stride;
#pragma omp simd
    for (int64_t j = 0; j < params.dim; ++j) y[j] = scale * x[j] + row[j];
  });
}

template <class T>
void scale_rows(const EncodingBackwardParams& params) {
  const T* dy = static_cast<const T*>(params.dy);
  T* dx = static_cast<T*>(params.dx);
  const T scale = static_cast<T>(params.scale);
  parallel_for(params.tokens * params.dim, 16384, [&](int64_t begin, int64_t end) {
#pragma omp simd
    for (int64_t e = begin; e < end; ++e) dx[e] = scale * dy[e];
  });
}

}  // namespace

void position_index_cpu(const PositionIndexParams& params) {
  parallel_for(params.batch, 64, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      const int64_t first = params.offsets[b], length = params.offsets[b + 1] - first;
      const int64_t targets = params.num_targets ? params.num_targets[b] : 0;
      const int64_t high = std::min(length - targets, params.table_rows - 1);
      for (int64_t pos = 0; pos < length; ++pos) params.index[first + pos] = std::min(pos, high);
    }
  });
}

void time_index_cpu(const TimeIndexParams& params) {
  parallel_for(params.batch, 64, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      const int64_t first = params.offsets[b], last = params.offsets[b + 1];
      for (int64_t i = first; i < last; ++i) {
        params.index[i] = time_row(params.timestamps[last - 1], params.timestamps[i], params.unit,
                                   params.table_rows);
      }
    }
  });
}

void encoding_forward_cpu(const EncodingParams& params, DType dtype) {
  cpu::dispatch(dtype, [&](auto zero) { forward<decltype(zero)>(params); });
}

void encoding_backward_cpu(const EncodingBackwardParams& params, DType dtype) {
  if (params.dtable) {  // before dx, which may overwrite dy
    const RowSumParams sums{.rows = params.dy,
                            .ids = params.index,
                            .more_ids = nullptr,
                            .weights = nullptr,
                            .positions = params.tokens,
                            .columns = 1,
                            .dim = params.dim,
                            .num_rows = params.table_rows};
    make_row_sums_cpu(sums, dtype)->write_dense(params.dtable);
  }
  if (params.dx) {
    cpu::dispatch(dtype, [&](auto zero) { scale_rows<decltype(zero)>(params); });
  }
}

}  // namespace seqfuse::ops
