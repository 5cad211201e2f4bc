// The dropout mask of a launch.
#pragma once

#include "ops/kernels/step/dropout.h"
#include "ops/kernels/step/dropout_mask.cuh"

namespace seqfuse::ops::cuda {

inline DropoutMask make_dropout_mask(double p, Seed seed) {
  return {
      .seed = seed, .threshold = dropout_threshold(p), .scale = static_cast<float>(1 / (1 - p))};
}

}  // namespace seqfuse::ops::cuda
