// How the variant tables describe kernel shapes.
#pragma once

#include "ops/kernels/attention/variant.h"
#include "ops/kernels/common/device_limits.h"

namespace seqfuse::ops::attention::sm80 {

// Whether an SM 8.0 multiprocessor fits as many blocks as the kernel is designed for.
template <class Shape>
constexpr bool fills_sm80() {
  return blocks_within(kSharedOfSm80Processor, Shape::kSharedBytes) >= Shape::kBlocks;
}

}  // namespace seqfuse::ops::attention::sm80
