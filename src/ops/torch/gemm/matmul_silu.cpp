#include "ops/kernels/gemm/gemm_silu.h"
#include "ops/torch/cuda.h"
#include "ops/torch/gemm/matmul.h"

namespace seqfuse::ops {
namespace matmul_silu_op {
namespace {

constexpr const char* kOp = "matmul_silu";

void check_arguments(const Tensor& y, const Tensor& z, const Tensor& a, const Tensor& b,
                     const Tensor& bias) {
  check_rank({kOp, "a", a}, 2, "[M, K]");
  check_rank({kOp, "b", b}, 2, "[K, N]");
  check_sizes({kOp, "b", b}, {a.size(1), b.size(1)}, "as many rows as a has columns");
  check_like({kOp, "b", b}, {kOp, "a", a});
  const auto check = [&](const char* name, const Tensor& t, at::IntArrayRef sizes) {
    if (!t.defined()) return;
    check_sizes({kOp, name, t}, sizes, "a and b");
    check_like({kOp, name, t}, {kOp, "a", a});
  };
  check("y", y, {a.size(0), b.size(1)});
  check("z", z, y.sizes());
  check("bias", bias, {b.size(1)});
  TORCH_CHECK_VALUE(a.is_cuda(), kOp, ": a is on ", a.device(), "; expected a CUDA device");
}

#ifdef SEQFUSE_HAS_CUDA
int64_t row_stride(const Tensor& matrix) {
  return matrix.defined() ? matrix.stride(0) : 0;
}

// Returns false and enqueues nothing if the kernels do not support the arguments.
bool ran_fused(const Tensor& y, const Tensor& z, const Tensor& a, const Tensor& b,
               const Tensor& bias) {
  for (const Tensor& matrix : {y, z, a, b})
    if (matrix.defined() && matrix.stride(1) != 1) return false;
  const GemmSiluParams params{.a = a.const_data_ptr(),
                              .b = b.const_data_ptr(),
                              .bias = data_or_null(bias),
                              .y = y.mutable_data_ptr(),
                              .z = z.defined() ? z.mutable_data_ptr() : nullptr,
                              .m = a.size(0),
                              .n = b.size(1),
                              .k = a.size(1),
                              .a_stride = row_stride(a),
                              .b_stride = row_stride(b),
                              .y_stride = row_stride(y),
                              .z_stride = row_stride(z)};
  const DType dtype = dtype_of(a);
  if (!gemm_silu_cuda_takes(params, dtype)) return false;
  C10_CUDA_CHECK(gemm_silu_cuda(params, dtype, c10::cuda::getCurrentCUDAStream()));
  return true;
}
#endif

}  // namespace
}  // namespace matmul_silu_op

void matmul_silu_into(const Tensor& y, const Tensor& z, const Tensor& a, const Tensor& b,
                      const Tensor& bias) {
  matmul_silu_op::check_arguments(y, z, a, b, bias);
  const DeviceGuard guard(y);
  const Tensor added = contiguous_or_undefined(bias);
#ifdef SEQFUSE_HAS_CUDA
  if (matmul_silu_op::ran_fused(y, z, a, b, added)) return;
#endif
  const Tensor& product = z.defined() ? z : y;
  matmul_into(product, a, b, {.bias = added});
  Tensor result = y;
  at::silu_out(result, product);
}

}  // namespace seqfuse::ops
