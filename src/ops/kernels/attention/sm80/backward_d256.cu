#include "ops/kernels/attention/sm80/backward_variants.cuh"

namespace seqfuse::ops::attention::sm80 {

template std::span<const Variant> backward_variants<256>();
template std::span<const Variant> backward_queries_variants<256>();
template std::span<const Variant> bias_gradient_variants<256>();

}  // namespace seqfuse::ops::attention::sm80
