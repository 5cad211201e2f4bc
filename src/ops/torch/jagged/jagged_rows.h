// The number of rows of a jagged result.
#pragma once

#include <cstdint>
#include <optional>

#include "ops/torch/checks.h"

namespace seqfuse::ops {

// The last offset. On the CPU it is read and must match total, if given; on a GPU it is total.
inline int64_t total_rows(const Arg& offsets, const std::optional<int64_t>& total) {
  if (!offsets.tensor.is_cpu()) {
    TORCH_CHECK_VALUE(total && *total >= 0, offsets.op,
                      ": the number of rows of the result was not given; on CUDA pass it as total, "
                      "since reading ",
                      offsets.name, " would wait for the GPU");
    return *total;
  }
  const int64_t rows = offsets.tensor[-1].item<int64_t>();
  TORCH_CHECK_VALUE(!total || *total == rows, offsets.op, ": total is ", *total, " but ",
                    offsets.name, " ends with ", rows, "; they must be equal");
  return rows;
}

}  // namespace seqfuse::ops
