// Block masks built on a device, also for the Python package, whose rules are integers and tables.
#pragma once

#include "masks/mask.h"
#include "ops/torch/attention/masked_attention.h"

namespace seqfuse::ops {

// Built on that device: the CPU, or a GPU, for which it waits once. Equal on both.
BlockMaskTensors build_block_mask(const masks::Mask& mask, at::Device device);

}  // namespace seqfuse::ops
