#include "ops/kernels/step/step_scalars.h"

namespace seqfuse::ops {
namespace {

__global__ void step_start_kernel(StepStartParams params) {
  step_start(params);
}

__global__ void step_scalars_kernel(StepScalarsParams params) {
  step_scalars(params);
}

}  // namespace

cudaError_t step_start_cuda(const StepStartParams& params, cudaStream_t stream) {
  step_start_kernel<<<1, 1, 0, stream>>>(params);
  return cudaGetLastError();
}

cudaError_t step_scalars_cuda(const StepScalarsParams& params, cudaStream_t stream) {
  step_scalars_kernel<<<1, 1, 0, stream>>>(params);
  return cudaGetLastError();
}

}  // namespace seqfuse::ops
