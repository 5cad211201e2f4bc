#include "ops/kernels/attention/sm80/backward_launch.cuh"

namespace seqfuse::ops::sm80 {

template cudaError_t launch_backward_queries<256>(const Arguments&, DType, int, int64_t,
                                                  cudaStream_t);
template cudaError_t launch_backward<256>(const Arguments&, DType, int, int64_t, cudaStream_t);
template cudaError_t launch_bias_gradient<256>(const Arguments&, DType, int, int64_t, cudaStream_t);

}  // namespace seqfuse::ops::sm80
