#include "ops/kernels/attention/sm90/masked_backward.cuh"
#include "ops/kernels/attention/sm90/masked_kernels.h"
#include "ops/kernels/attention/sm90/masked_launch.cuh"

namespace seqfuse::ops::attention::sm90 {

cudaError_t masked_backward_keys(const MaskedArguments& args, DType dtype, cudaStream_t stream) {
  using Shape = MaskedKeysShape;
  const auto kernel = dtype == DType::bf16 ? masked_backward_keys_kernel<__nv_bfloat16, Shape>
                                           : masked_backward_keys_kernel<__half, Shape>;
  return launch_masked(kernel, Shape::kSharedBytes,
                       args.mask.key_blocks * args.batch * args.key_heads, true, args, stream);
}

}  // namespace seqfuse::ops::attention::sm90
