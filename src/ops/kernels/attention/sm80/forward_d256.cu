#include "ops/kernels/attention/sm80/forward_launch.cuh"

namespace seqfuse::ops::sm80 {

template cudaError_t launch_forward<256>(const Arguments&, DType, int, int64_t, cudaStream_t);

}  // namespace seqfuse::ops::sm80
