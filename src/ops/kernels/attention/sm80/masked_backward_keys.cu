#include "ops/kernels/attention/masked_variant.h"
#include "ops/kernels/attention/sm80/masked_backward.cuh"
#include "ops/kernels/attention/sm80/shape.h"

namespace seqfuse::ops::attention::sm80 {
namespace {

template <int kDim>
constexpr MaskedVariant row() {
  using Shape = MaskedBackwardShape<kDim>;
  static_assert(fills_sm80<Shape>() && Shape::kSharedBytes <= kSharedOfSm86);
  return {.config = masked_config<Shape>("masked_backward_keys_kernel"),
          .f16 = masked_backward_keys_kernel<__half, Shape>,
          .bf16 = masked_backward_keys_kernel<__nv_bfloat16, Shape>};
}

}  // namespace

std::span<const MaskedVariant> masked_keys_variants() {
  static const MaskedVariant rows[] = {row<32>(), row<64>(), row<96>(), row<128>()};
  return rows;
}

}  // namespace seqfuse::ops::attention::sm80
