// Logits where sampling reads them.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <span>

namespace seqfuse::serving {

// float32, contiguous, on the CPU.
inline at::Tensor on_host(const at::Tensor& logits) {
  return logits.to(at::TensorOptions(at::kCPU).dtype(at::kFloat)).contiguous();
}

// A row of [rows, V] from on_host, which must outlive it.
inline std::span<const float> row_of(const at::Tensor& logits, int64_t row) {
  return {logits.const_data_ptr<float>() + row * logits.size(1),
          static_cast<size_t>(logits.size(1))};
}

}  // namespace seqfuse::serving
