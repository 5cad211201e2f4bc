// Shared by GPU tests: fixtures that skip tests, with a reason, if the build or the machine has no
// GPU; results with gradients; modes of PyTorch.
#pragma once

#include "base/dtype.h"
#include "tests/missing_gpu.h"
#include "tests/ops/op_test.h"

#ifdef SEQFUSE_HAS_CUDA
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#endif

namespace seqfuse::test {

class CudaTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const char* why = missing_gpu()) GTEST_SKIP() << why;
    at::manual_seed(1);
  }
};

template <class Param>
class CudaTestWithParam : public CudaTest, public testing::WithParamInterface<Param> {};

// The dtypes of operators on CUDA.
inline auto cuda_types() {
  return testing::Values(at::kFloat, at::kHalf, at::kBFloat16);
}

inline DType kernel_dtype(at::ScalarType type) {
  return type == at::kFloat ? DType::f32 : type == at::kHalf ? DType::f16 : DType::bf16;
}

inline Tensor to64(const Tensor& t) {
  return t.detach().cpu().to(at::kDouble);
}

inline std::vector<Tensor> to64(const std::vector<Tensor>& tensors) {
  std::vector<Tensor> result;
  for (const Tensor& t : tensors) result.push_back(to64(t));
  return result;
}

using OpOfLeaves = std::function<Tensor(const std::vector<Tensor>&)>;

// f(leaves) and its gradients with respect to the leaves, for the gradient dy of the result.
inline std::vector<Tensor> with_gradients(const OpOfLeaves& f, std::vector<Tensor> leaves,
                                          const Tensor& dy) {
  for (Tensor& leaf : leaves) leaf = leaf.detach().requires_grad_();
  const Tensor y = f(leaves);
  auto all = torch::autograd::grad({y}, leaves, {dy.to(y.options())});
  all.insert(all.begin(), y.detach());
  return all;
}

// Compares our results and gradients with the reference, and with those of plain in the same dtype.
inline void expect_oracle_rules(const std::vector<Tensor>& ours, const std::vector<Tensor>& plain,
                                const std::vector<Tensor>& reference,
                                const std::vector<std::string>& names) {
  for (size_t i = 0; i < ours.size(); ++i)
    expect_oracle_rule(ours[i], plain[i], reference[i], i == 0 ? 2 : 5, names[i]);
}

// Equal up to the order of sums: kernels of another width assign elements to other lanes.
inline void expect_close(const std::vector<Tensor>& actual, const std::vector<Tensor>& expected,
                         const std::string& what) {
  for (size_t i = 0; i < expected.size(); ++i) {
    ASSERT_EQ(actual[i].scalar_type(), expected[i].scalar_type()) << what << ", result " << i;
    const auto type = expected[i].scalar_type();
    const double tolerance = type == at::kFloat ? 1e-5 : type == at::kHalf ? 2e-3 : 2e-2;
    const Tensor a = to64(actual[i]), b = to64(expected[i]);
    EXPECT_LE(max_abs(a - b), tolerance * (1 + max_abs(b))) << what << ", result " << i;
  }
}

inline void expect_equal(const std::vector<Tensor>& actual, const std::vector<Tensor>& expected,
                         const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_TRUE(at::equal(actual[i], expected[i])) << what << ", result " << i;
}

// Sets at::globalContext().deterministicAlgorithms() during its lifetime.
struct Deterministic {
  explicit Deterministic(bool yes = true) {
    at::globalContext().setDeterministicAlgorithms(yes, false);
  }
  ~Deterministic() { at::globalContext().setDeterministicAlgorithms(false, false); }
};

// Bytes of free GPU memory after PyTorch has released its cache.
inline int64_t free_gpu_memory() {
  size_t free = 0, total = 0;
#ifdef SEQFUSE_HAS_CUDA
  c10::cuda::CUDACachingAllocator::emptyCache();
  C10_CUDA_CHECK(cudaMemGetInfo(&free, &total));
#endif
  return static_cast<int64_t>(free);
}

// While it exists, any PyTorch call that synchronises is an error.
struct NoSynchronisation {
  NoSynchronisation() { forbid(true); }
  ~NoSynchronisation() { forbid(false); }

 private:
  static void forbid([[maybe_unused]] bool yes) {
#ifdef SEQFUSE_HAS_CUDA
    using Mode = c10::cuda::SyncDebugMode;
    c10::cuda::warning_state().set_sync_debug_mode(yes ? Mode::L_ERROR : Mode::L_DISABLED);
#endif
  }
};

}  // namespace seqfuse::test
