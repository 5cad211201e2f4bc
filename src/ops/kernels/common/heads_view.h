// A tensor [T, H, d] of 16-bit elements in global memory, as tensor-core kernels read and write it.
#pragma once

#include "ops/kernels/common/host_device.h"

namespace seqfuse::ops {

// Strides in bytes.
struct HeadsView {
  char* data;
  int64_t row_bytes, head_bytes;
  int grain;  // widest aligned access in bytes: 16, 4 or 2
};

}  // namespace seqfuse::ops
