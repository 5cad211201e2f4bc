#include "ops/kernels/attention/sm90/masked_backward.cuh"

#include "ops/kernels/attention/sm90/masked_launch.cuh"
#include "ops/kernels/attention/variant.h"

namespace seqfuse::ops::attention::sm90 {
namespace {

cudaError_t launch(const Config& config, const MaskedAttentionParams& params, DType dtype,
                   cudaStream_t stream) {
  return launch_with_tiles(config, masked_backward_queries_kernel<__half, MaskedQueriesShape>,
                           masked_backward_queries_kernel<__nv_bfloat16, MaskedQueriesShape>, dtype,
                           lists_of_queries(params), stream, arguments_of(params), true);
}

}  // namespace

std::span<const MaskedVariant> masked_queries_variants() {
  static const MaskedVariant rows[] = {
      {.config = config_of<MaskedQueriesShape>("masked_backward_queries_kernel", 90, 64),
       .least_head_dim = 33,
       .copies_tiles = true,
       .launch = &launch}};
  return rows;
}

}  // namespace seqfuse::ops::attention::sm90
