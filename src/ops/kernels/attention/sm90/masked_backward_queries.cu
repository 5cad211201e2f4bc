#include "ops/kernels/attention/sm90/masked_backward.cuh"
#include "ops/kernels/attention/sm90/masked_kernels.h"
#include "ops/kernels/attention/sm90/masked_launch.cuh"

namespace seqfuse::ops::attention::sm90 {

cudaError_t masked_backward_queries(const MaskedArguments& args, DType dtype, cudaStream_t stream) {
  using Shape = MaskedQueriesShape;
  const auto kernel = dtype == DType::bf16 ? masked_backward_queries_kernel<__nv_bfloat16, Shape>
                                           : masked_backward_queries_kernel<__half, Shape>;
  return launch_masked(kernel, Shape::kSharedBytes,
                       args.mask.query_blocks * args.batch * args.heads, true, args, stream);
}

}  // namespace seqfuse::ops::attention::sm90
