#include "ops/kernels/attention/variant.h"

namespace seqfuse::ops::attention::sm80 {
namespace {

template <int kHeadDim>
std::span<const Variant> variants_of(Pass pass) {
  switch (pass) {
    case Pass::forward:
      return forward_variants<kHeadDim>();
    case Pass::backward:
      return backward_variants<kHeadDim>();
    case Pass::backward_queries:
      return backward_queries_variants<kHeadDim>();
    case Pass::bias_gradient:
      return bias_gradient_variants<kHeadDim>();
  }
  return {};
}

}  // namespace

std::span<const Variant> variants(Pass pass, int head_dim) {
  switch (head_dim) {
    case 32:
      return variants_of<32>(pass);
    case 64:
      return variants_of<64>(pass);
    case 128:
      return variants_of<128>(pass);
    default:
      return variants_of<256>(pass);
  }
}

}  // namespace seqfuse::ops::attention::sm80
