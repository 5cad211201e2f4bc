// Checks the problem and picks the kernel for the device.
#include "ops/kernels/gemm/gemm_silu.h"

#include <initializer_list>

#include "ops/kernels/common/device_limits.h"
#include "ops/kernels/gemm/gemm_silu_kernels.h"

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
#ifdef SEQFUSE_HAS_SM90_KERNELS
  int device = 0, major = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess)
    error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  if (error != cudaSuccess) return error;
  if (major == 9 && forced_sm() == 0) return gemm_silu_sm90(params, dtype, stream);
#endif
  return gemm_silu_sm80(params, dtype, stream);
}

}  // namespace seqfuse::ops
