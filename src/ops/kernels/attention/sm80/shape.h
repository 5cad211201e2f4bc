// What the tables of variants say about the shapes of kernels.
#pragma once

#include "ops/kernels/attention/variant.h"
#include "ops/kernels/common/device_limits.h"

namespace seqfuse::ops::attention::sm80 {

// Whether a processor of SM 8.0 runs as many blocks as a kernel is made for.
template <class Shape>
constexpr bool fills_sm80() {
  return blocks_within(kSharedOfSm80Processor, Shape::kSharedBytes) >= Shape::kBlocks;
}

}  // namespace seqfuse::ops::attention::sm80
