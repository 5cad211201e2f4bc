#include "ops/kernels/attention/sm80/forward_variants.cuh"

namespace seqfuse::ops::attention::sm80 {

template std::span<const Variant> forward_variants<128>();

}  // namespace seqfuse::ops::attention::sm80
