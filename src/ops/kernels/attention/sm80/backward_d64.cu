#include "ops/kernels/attention/sm80/backward_variants.cuh"

namespace seqfuse::ops::attention::sm80 {

template std::span<const Variant> backward_variants<64>();
template std::span<const Variant> backward_queries_variants<64>();
template std::span<const Variant> bias_gradient_variants<64>();

}  // namespace seqfuse::ops::attention::sm80
