#include "ops/kernels/attention/sm80/backward_launch.cuh"

namespace seqfuse::ops::sm80 {

template cudaError_t launch_backward_queries<128>(const Arguments&, DType, int, int64_t,
                                                  cudaStream_t);
template cudaError_t launch_backward<128>(const Arguments&, DType, int, int64_t, cudaStream_t);
template cudaError_t launch_bias_gradient<128>(const Arguments&, DType, int, int64_t, cudaStream_t);

}  // namespace seqfuse::ops::sm80
