#include "ops/kernels/attention/masked_launch.cuh"
#include "ops/kernels/attention/sm80/masked_backward.cuh"
#include "ops/kernels/attention/sm80/shape.h"

namespace seqfuse::ops::attention::sm80 {
namespace {

template <int kDim>
constexpr MaskedVariant row() {
  using Shape = MaskedBackwardShape<kDim>;
  static_assert(fills_sm80<Shape>() && Shape::kSharedBytes <= kSharedOfSm86);
  return {.config = config_of<Shape>("masked_backward_queries_kernel", 80, kDim),
          .launch = [](const Config& config, const MaskedAttentionParams& params, DType dtype,
                       cudaStream_t stream) {
            return launch_blocks(config, masked_backward_queries_kernel<__half, Shape>,
                                 masked_backward_queries_kernel<__nv_bfloat16, Shape>, dtype,
                                 lists_of_queries(params), stream, arguments_of(params));
          }};
}

}  // namespace

std::span<const MaskedVariant> masked_queries_variants() {
  static const MaskedVariant rows[] = {row<32>(), row<64>(), row<96>(), row<128>()};
  return rows;
}

}  // namespace seqfuse::ops::attention::sm80
