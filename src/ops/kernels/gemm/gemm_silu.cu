// Checks the problem and picks the kernel for the device.
#include "ops/kernels/gemm/gemm_silu.h"

#include <initializer_list>

#include "ops/kernels/common/current_sm.h"
#include "ops/kernels/gemm/gemm_silu_variant.h"

namespace seqfuse::ops {

bool gemm_silu_cuda_takes(const GemmSiluParams& p, DType dtype) {
  if (dtype != DType::f16 && dtype != DType::bf16) return false;
  constexpr int64_t kLimit = 1 << 30;
  if (p.m >= kLimit || p.n >= kLimit || p.k >= kLimit || p.n == 0 || p.k == 0) return false;
  for (const int64_t elements : {p.n, p.k, p.a_stride, p.b_stride, p.y_stride, p.z_stride})
    if (elements % 8 != 0) return false;
  for (const void* pointer :
       {p.a, p.b, p.bias, static_cast<const void*>(p.y), static_cast<const void*>(p.z)})
    if (reinterpret_cast<uintptr_t>(pointer) % 16 != 0) return false;
  return true;
}

cudaError_t gemm_silu_cuda(const GemmSiluParams& params, DType dtype, cudaStream_t stream) {
  if (!gemm_silu_cuda_takes(params, dtype)) return cudaErrorInvalidValue;
  if (params.m == 0) return cudaSuccess;
  int sm = 0;
  const cudaError_t error = current_sm(sm);
  if (error != cudaSuccess) return error;
  const gemm::Problem problem{.n = params.n, .k = params.k};
  const gemm::Variant& variant = gemm::choose_variant(problem, sm);
  gemm::log_choice(problem, variant.config, dtype);
  return variant.launch(params, dtype, stream);
}

}  // namespace seqfuse::ops
