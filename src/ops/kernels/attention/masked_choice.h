// Which way the forward pass of attention under a mask takes on a GPU, by estimates of its time.
#pragma once

#include <cstdint>
#include <string>

#include "base/dtype.h"
#include "masks/rule.h"

namespace seqfuse::ops::attention {

enum class MaskedWay {
  blocks,   // tensor cores, whole blocks of 64 x 64
  rows,     // a warp a query, only allowed pairs
  library,  // PyTorch's own attention, for masks that are plainly full or causal
};

struct MaskedWork {
  int64_t batch = 0, heads = 0, head_dim = 0;
  int64_t queries = 0, keys = 0, query_blocks = 0;
  int64_t mask_batch = 1;
  int64_t visited = 0, allowed = 0;  // blocks and pairs of the mask, over its sequences
  masks::Plain plain = masks::Plain::none;
  bool library_takes = false;  // these heads, strides and this device
  int processors = 132;        // of the GPU
};

// Microseconds; infinite where a way is not open.
struct MaskedEstimate {
  double blocks = 0, rows = 0, library = 0;
};

MaskedEstimate estimate(const MaskedWork& work);

// The fastest by estimate, or, if it is open, the one that SEQFUSE_MASKED_ATTENTION names in the
// environment: blocks, rows or library; read at every call. Throws UsageError for another value.
MaskedWay choose_way(const MaskedWork& work);

// With SEQFUSE_LOG_KERNELS=1 in the environment: prints the choice and the estimates to standard
// error, once for each text.
void log_way(const MaskedWork& work, DType dtype, MaskedWay way);

}  // namespace seqfuse::ops::attention
