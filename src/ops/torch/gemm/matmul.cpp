#include "ops/torch/gemm/matmul.h"

#include "ops/torch/cuda.h"

#ifdef SEQFUSE_HAS_CUDA
#include <ATen/cuda/CUDAContextLight.h>
#include <cublasLt.h>

#include <algorithm>
#include <bit>

namespace seqfuse::ops {
namespace {

#define SEQFUSE_CUBLAS_CHECK(call)                                                              \
  do {                                                                                          \
    const cublasStatus_t status = (call);                                                       \
    TORCH_CHECK(status == CUBLAS_STATUS_SUCCESS, #call, ": ", cublasLtGetStatusString(status)); \
  } while (false)

cudaDataType_t cuda_type(at::ScalarType type) {
  switch (type) {
    case at::kHalf:
      return CUDA_R_16F;
    case at::kBFloat16:
      return CUDA_R_16BF;
    case at::kFloat:
      return CUDA_R_32F;
    default:
      TORCH_CHECK_VALUE(false, "matmul: the dtype is ", type, "; expected Half, BFloat16 or Float");
  }
}

// cuBLASLt is column-major: it sees a row-major [R, C] as a C x R matrix.
class Layout {
 public:
  explicit Layout(const Tensor& matrix) {
    transposed_ = matrix.stride(1) != 1 && matrix.size(1) > 1;
    const Tensor stored = transposed_ ? matrix.t() : matrix;
    TORCH_CHECK_VALUE(stored.stride(1) == 1 || stored.size(1) <= 1, "matmul: strides are ",
                      matrix.strides(), "; expected adjacent elements in rows or in columns");
    const int64_t ld = std::max(stored.size(0) > 1 ? stored.stride(0) : 0, stored.size(1));
    SEQFUSE_CUBLAS_CHECK(cublasLtMatrixLayoutCreate(&layout_, cuda_type(matrix.scalar_type()),
                                                    static_cast<uint64_t>(stored.size(1)),
                                                    static_cast<uint64_t>(stored.size(0)), ld));
  }
  Layout(const Layout&) = delete;
  Layout& operator=(const Layout&) = delete;
  ~Layout() { cublasLtMatrixLayoutDestroy(layout_); }

  cublasLtMatrixLayout_t get() const { return layout_; }
  cublasOperation_t operation() const { return transposed_ ? CUBLAS_OP_T : CUBLAS_OP_N; }

 private:
  cublasLtMatrixLayout_t layout_ = nullptr;
  bool transposed_ = false;
};

class Description {
 public:
  explicit Description(cublasComputeType_t compute) {
    SEQFUSE_CUBLAS_CHECK(cublasLtMatmulDescCreate(&description_, compute, CUDA_R_32F));
  }
  Description(const Description&) = delete;
  Description& operator=(const Description&) = delete;
  ~Description() { cublasLtMatmulDescDestroy(description_); }

  template <class T>
  void set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    SEQFUSE_CUBLAS_CHECK(cublasLtMatmulDescSetAttribute(
        description_, attribute, reinterpret_cast<const void*>(&value), sizeof value));
  }
  cublasLtMatmulDesc_t get() const { return description_; }

 private:
  cublasLtMatmulDesc_t description_ = nullptr;
};

class Preference {
 public:
  Preference() { SEQFUSE_CUBLAS_CHECK(cublasLtMatmulPreferenceCreate(&preference_)); }
  Preference(const Preference&) = delete;
  Preference& operator=(const Preference&) = delete;
  ~Preference() { cublasLtMatmulPreferenceDestroy(preference_); }

  template <class T>
  void set(cublasLtMatmulPreferenceAttributes_t attribute, const T& value) {
    SEQFUSE_CUBLAS_CHECK(
        cublasLtMatmulPreferenceSetAttribute(preference_, attribute, &value, sizeof value));
  }
  cublasLtMatmulPreference_t get() const { return preference_; }

 private:
  cublasLtMatmulPreference_t preference_ = nullptr;
};

// The largest power of two up to 256 that divides the address.
uint32_t alignment_of(const Tensor& tensor) {
  const auto address = reinterpret_cast<uintptr_t>(tensor.const_data_ptr());
  return 1U << std::min(8, std::countr_zero(address | 256));
}

cublasComputeType_t compute_type(const Tensor& a) {
  if (a.scalar_type() != at::kFloat) return CUBLAS_COMPUTE_32F;
  return at::globalContext().allowTF32CuBLAS() ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

void add_bias(Description& description, const Tensor& bias) {
  description.set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
  description.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, const_cast<void*>(bias.const_data_ptr()));
  description.set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, cuda_type(bias.scalar_type()));
}

}  // namespace

void matmul_into(const Tensor& d, const Tensor& a, const Tensor& b, const MatmulTerms& terms) {
  const auto check_sizes = [&](const char* name, const Tensor& t, at::IntArrayRef sizes) {
    TORCH_CHECK_VALUE(!t.defined() || t.sizes() == sizes, "matmul: ", name, " is ", t.sizes(),
                      " for a ", a.sizes(), " and b ", b.sizes(), "; expected ", sizes);
  };
  check_sizes("b", b, {a.size(1), b.size(1)});
  check_sizes("d", d, {a.size(0), b.size(1)});
  check_sizes("c", terms.c, d.sizes());
  check_sizes("bias", terms.bias, {b.size(1)});
  const DeviceGuard guard(d);
  if (d.numel() == 0) return;
  if (a.size(1) == 0) {  // nothing to sum
    d.zero_();
    if (terms.c.defined()) d.add_(terms.c);
    if (terms.bias.defined()) d.add_(terms.bias);
    return;
  }
  const Tensor& c = terms.c.defined() ? terms.c : d;
  // cuBLASLt sees transposes, so compute d^T = b^T a^T.
  const Layout first(b), second(a), added(c), result(d);
  Description description(compute_type(a));
  description.set(CUBLASLT_MATMUL_DESC_TRANSA, first.operation());
  description.set(CUBLASLT_MATMUL_DESC_TRANSB, second.operation());
  if (terms.bias.defined()) add_bias(description, terms.bias);

  Preference preference;
  const size_t workspace = at::cuda::getCUDABlasLtWorkspaceSize();
  preference.set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace);
  preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(b));
  preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(a));
  preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment_of(c));
  preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment_of(d));

  const cublasLtHandle_t handle = at::cuda::getCurrentCUDABlasLtHandle();
  cublasLtMatmulHeuristicResult_t choice{};
  int choices = 0;
  SEQFUSE_CUBLAS_CHECK(cublasLtMatmulAlgoGetHeuristic(handle, description.get(), first.get(),
                                                      second.get(), added.get(), result.get(),
                                                      preference.get(), 1, &choice, &choices));
  TORCH_CHECK(choices > 0, "matmul: cuBLASLt has no algorithm for ", a.sizes(), " times ",
              b.sizes(), " of ", a.scalar_type());
  const float one = 1, beta = terms.c.defined() ? 1 : 0;
  SEQFUSE_CUBLAS_CHECK(cublasLtMatmul(
      handle, description.get(), &one, b.const_data_ptr(), first.get(), a.const_data_ptr(),
      second.get(), &beta, c.const_data_ptr(), added.get(), d.mutable_data_ptr(), result.get(),
      &choice.algo, at::cuda::getCUDABlasLtWorkspace(), workspace,
      c10::cuda::getCurrentCUDAStream()));
}

}  // namespace seqfuse::ops
#else
namespace seqfuse::ops {

void matmul_into(const Tensor&, const Tensor&, const Tensor&, const MatmulTerms&) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "matmul: this build has no CUDA");
}

}  // namespace seqfuse::ops
#endif
