// A tensor [T, H, d] of half words in global memory, as kernels on tensor cores read and write it.
#pragma once

#include "ops/kernels/common/host_device.h"

namespace seqfuse::ops {

// Strides in bytes.
struct HeadsView {
  char* data;
  int64_t row_bytes, head_bytes;
  int grain;  // bytes that may be moved at once: 16, 4 or 2
};

}  // namespace seqfuse::ops
