// The table row of each token of a jagged tensor.
#pragma once

#include <torch/types.h>

#include <algorithm>
#include <cmath>

namespace seqfuse::oracle {

// num_targets: int64 [B] or undefined. Returns int64 [T].
inline at::Tensor position_index(const at::Tensor& offsets, const at::Tensor& num_targets,
                                 int64_t table_rows) {
  at::Tensor index = at::empty({offsets[-1].item<int64_t>()}, at::kLong);
  for (int64_t b = 0; b + 1 < offsets.numel(); ++b) {
    const int64_t first = offsets[b].item<int64_t>(),
                  length = offsets[b + 1].item<int64_t>() - first;
    const int64_t targets = num_targets.defined() ? num_targets[b].item<int64_t>() : 0;
    for (int64_t pos = 0; pos < length; ++pos) {
      index[first + pos] = std::min({pos, length - targets, table_rows - 1});
    }
  }
  return index;
}

inline at::Tensor time_index(const at::Tensor& offsets, const at::Tensor& timestamps, double unit,
                             int64_t table_rows) {
  at::Tensor index = at::empty(timestamps.sizes(), at::kLong);
  for (int64_t b = 0; b + 1 < offsets.numel(); ++b) {
    const int64_t first = offsets[b].item<int64_t>(), last = offsets[b + 1].item<int64_t>();
    for (int64_t i = first; i < last; ++i) {
      const int64_t age = (timestamps[last - 1] - timestamps[i]).item<int64_t>();
      int64_t bucket = 0;
      while (bucket + 1 < table_rows && static_cast<double>((bucket + 1) * (bucket + 1)) * unit <=
                                            static_cast<double>(std::max<int64_t>(age, 0))) {
        ++bucket;
      }
      index[i] = bucket;
    }
  }
  return index;
}

}  // namespace seqfuse::oracle
