#include "ops/kernels/attention/masked_attention.h"

#include "ops/kernels/attention/launch.h"
#include "ops/kernels/attention/masked_launch.cuh"

namespace seqfuse::ops {
namespace {

using attention::MaskedPass;

cudaError_t run(MaskedPass pass, const MaskedAttentionParams& params, DType dtype,
                cudaStream_t stream) {
  attention::Device device;
  const cudaError_t error = attention::current_device(device);
  if (error != cudaSuccess) return error;
  const attention::MaskedProblem problem = attention::problem_of(pass, params);
  const attention::MaskedVariant& variant = attention::choose_variant(problem, device);
  attention::log_choice(problem, variant.config, dtype);
  return variant.launch(variant.config, params, dtype, stream);
}

}  // namespace

cudaError_t masked_attention_forward_cuda(const MaskedAttentionParams& params, DType dtype,
                                          cudaStream_t stream) {
  return run(MaskedPass::forward, params, dtype, stream);
}

cudaError_t masked_attention_rows_forward_cuda(const MaskedAttentionParams& params, DType dtype,
                                               cudaStream_t stream) {
  return run(MaskedPass::forward_rows, params, dtype, stream);
}

cudaError_t masked_attention_backward_cuda(const MaskedAttentionParams& params, DType dtype,
                                           cudaStream_t stream) {
  cudaError_t error =
      attention::launch_masked_delta(attention::arguments_of(params), dtype, stream);
  if (error == cudaSuccess) error = run(MaskedPass::backward_keys, params, dtype, stream);
  if (error == cudaSuccess) error = run(MaskedPass::backward_queries, params, dtype, stream);
  return error;
}

}  // namespace seqfuse::ops
