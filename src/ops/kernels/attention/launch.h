// Launches kernels whose blocks take pieces of work until none is left.
#pragma once

#include <cuda_runtime_api.h>

#include "ops/kernels/attention/common/arguments.h"
#include "ops/kernels/attention/variant.h"

namespace seqfuse::ops::attention {

// The current device, or the one that SEQFUSE_FORCE_SM80 or _SM86 emulates.
cudaError_t current_device(Device& device);

// pieces: at least the number of (tile, head) pairs in args.list, which only the device knows.
// early: the kernel itself waits for its predecessor, so it may start while that one runs.
cudaError_t launch(const Variant& variant, DType dtype, const Arguments& args, int64_t pieces,
                   cudaStream_t stream, bool early = false);

// Converts the sums that a backward kernel left, if any, to dq.
cudaError_t launch_finish_dq(const Variant& variant, DType dtype, const Arguments& args,
                             cudaStream_t stream);

}  // namespace seqfuse::ops::attention
