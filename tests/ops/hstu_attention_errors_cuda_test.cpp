// Wrong arguments of HSTU attention on a GPU. Errors visible to the host throw. Wrong values of
// offsets and counts, which the host does not read, fail a device assertion, after which the
// process cannot use the GPU, so each such case runs in its own process.
#include <ATen/Parallel.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "tests/forked_processes.h"
#include "tests/ops/cuda_test.h"
#include "tests/ops/hstu_attention_problem.h"

namespace seqfuse::hstu_attention_errors_cuda_test {
namespace {

using namespace test;
using ops::HstuAttentionOptions;

class HstuAttentionErrorsCuda : public CudaTest {};

Tensor on_gpu(const std::vector<int64_t>& values) {
  return at::tensor(values, at::kLong).cuda();
}

TEST_F(HstuAttentionErrorsCuda, ErrorsOnTheHostThrow) {
  const auto bf16 = at::TensorOptions(at::kCUDA).dtype(at::kBFloat16);
  const Tensor q = at::randn({512, 4, 64}, bf16), offsets = on_gpu({0, 300, 512});
  const HstuAttentionOptions options{.max_seqlen = 300};
  const auto attend = [=](const Tensor& k, const Tensor& v, const Tensor& k_offsets,
                          const HstuAttentionOptions& with) {
    return [=] { ops::hstu_attention(q, k, v, offsets, k_offsets, with); };
  };
  expect_error(attend(q, at::randn({512, 4, 32}, bf16), offsets, options),
               "v is [512, 4, 32] but q is [512, 4, 64]; head_dim must match");
  expect_error(attend(q.to(at::kHalf), q, offsets, options),
               "k is Half on cuda:0; expected BFloat16 on cuda:0");
  expect_error(attend(q, q.cpu(), offsets, options),
               "v is BFloat16 on cpu; expected BFloat16 on cuda:0");
  expect_error(attend(q, q, offsets.cpu(), options),
               "k_offsets is on cpu; expected cuda:0, where the other arguments are");
  expect_error(attend(q, q, offsets.to(at::kFloat), options),
               "k_offsets is Float; expected Long or Int");
  expect_error(attend(q, q, on_gpu({0, 512}), options),
               "k_offsets has 2 elements but q_offsets has 3");
  expect_error(attend(q, q, on_gpu({0}), options),
               "k_offsets has one element, for no sequences, but k has 512 rows");
  expect_error(attend(q, q, offsets, {}), "max_seqlen is 0; on a GPU it must be given");
  expect_error(attend(q, q, offsets, {.max_seqlen = 300, .num_targets = at::tensor({1, 1})}),
               "num_targets is on cpu but q is on cuda:0; all arguments must be on one device");
  ops::HstuLayerWeights weights;
  weights.uvqk = at::randn({256, 1024});
  weights.output = at::randn({256, 256}, bf16);
  expect_error([&] { ops::hstu_layer(q.flatten(1), weights, offsets, {.heads = 4}); },
               "uvqk weight is on cpu; expected cuda:0");
  const Tensor wide = q.to(at::kDouble);
  expect_error([&] { ops::hstu_attention(wide, wide, wide, offsets, offsets, options); },
               "q is Double on cuda:0; expected Float, Half or BFloat16 on CUDA");
}

struct WrongCase {
  const char* name;
  std::vector<int64_t> q_offsets, k_offsets;
  int64_t max_seqlen = 300;
  std::vector<int64_t> contexts, targets;
  int64_t rows = 512;
  at::ScalarType type = at::kBFloat16;  // Float: by matrix products
  bool in_layer = false;
  bool int32 = false, time_bias = false;
  bool in_backward = false;             // the forward pass got valid values
  const char* kernel = "list of work";  // that reports the error
};

const std::vector<int64_t> kRight = {0, 300, 512};

Tensor layer_of(const Tensor& x, const Tensor& offsets, const HstuAttentionOptions& attention) {
  ops::HstuLayerWeights weights;
  weights.uvqk = at::randn({x.size(1), 4 * 128}, x.options());
  weights.output = at::randn({128, x.size(1)}, x.options());
  return ops::hstu_layer(x, weights, offsets, {.heads = 2, .attention = attention});
}

constexpr int kFine = 0, kDeviceError = 5, kNoGpu = 6;  // exit statuses

// Returns kDeviceError and prints the error if the device reports one.
int attend(const WrongCase& c) {
  const auto numbers = at::TensorOptions(at::kCUDA).dtype(c.type);
  const Tensor q = at::randn({c.rows, 2, 64}, numbers).requires_grad_(c.in_backward);
  const auto offsets_on_gpu = [&](const std::vector<int64_t>& values) {
    return on_gpu(values).to(c.int32 ? at::kInt : at::kLong);
  };
  const Tensor q_offsets = offsets_on_gpu(c.in_backward ? kRight : c.q_offsets);
  const Tensor k_offsets = offsets_on_gpu(c.in_backward ? kRight : c.k_offsets);
  HstuAttentionOptions options{.max_seqlen = c.max_seqlen};
  if (!c.contexts.empty()) options.num_contexts = on_gpu(c.contexts);
  if (!c.targets.empty()) options.num_targets = on_gpu(c.targets);
  if (c.time_bias) {
    options.time_bias = at::randn({129}, numbers.dtype(at::kFloat));
    options.timestamps = at::arange(512, numbers.dtype(at::kLong));
  }
  try {
    const Tensor out = c.in_layer ? layer_of(q.flatten(1), q_offsets, options)
                                  : ops::hstu_attention(q, q, q, q_offsets, k_offsets, options);
    if (c.in_backward) {
      q_offsets.variable_data().copy_(offsets_on_gpu(c.q_offsets));  // unnoticed by autograd
      k_offsets.variable_data().copy_(offsets_on_gpu(c.k_offsets));
      out.sum().backward();
    }
    out.sum().item<double>();  // waits for the device
  } catch (const c10::Error& error) {
    std::fprintf(stderr, "%s\n", error.what_without_backtrace());
    return kDeviceError;
  }
  return kFine;
}

const std::vector<int64_t> kBeyond = {0, 300, 513};

const std::vector<WrongCase> kWrongCases = {
    WrongCase{.name = "StartLate", .q_offsets = {1, 300, 512}, .k_offsets = {1, 300, 512}},
    WrongCase{.name = "Decrease", .q_offsets = {0, 300, 212, 512}, .k_offsets = {0, 300, 212, 512}},
    WrongCase{.name = "EndBeyond", .q_offsets = kBeyond, .k_offsets = kBeyond},
    WrongCase{.name = "EndEarly", .q_offsets = {0, 300, 511}, .k_offsets = {0, 300, 511}},
    WrongCase{.name = "BeyondTheInteger",
              .q_offsets = {0, 300 + (int64_t{1} << 32), 512},
              .k_offsets = {0, 300 + (int64_t{1} << 32), 512}},
    WrongCase{.name = "Int32", .q_offsets = kBeyond, .k_offsets = kBeyond, .int32 = true},
    WrongCase{.name = "MoreQueriesThanKeys", .q_offsets = kRight, .k_offsets = {0, 212, 512}},
    WrongCase{
        .name = "LongerThanSaid", .q_offsets = kRight, .k_offsets = kRight, .max_seqlen = 299},
    WrongCase{
        .name = "NegativeContexts", .q_offsets = kRight, .k_offsets = kRight, .contexts = {-1, 0}},
    WrongCase{
        .name = "NegativeTargets", .q_offsets = kRight, .k_offsets = kRight, .targets = {0, -1}},
    WrongCase{.name = "CountsTogether",
              .q_offsets = kRight,
              .k_offsets = kRight,
              .contexts = {150, 0},
              .targets = {151, 0}},
    WrongCase{.name = "BiasByTime",
              .q_offsets = kBeyond,
              .k_offsets = kBeyond,
              .time_bias = true,
              .kernel = "times of keys"},
    WrongCase{.name = "NoRows",
              .q_offsets = {0, 5},
              .k_offsets = {0, 5},
              .rows = 0,
              .kernel = "check of sequences"},
    WrongCase{.name = "Layer", .q_offsets = kBeyond, .k_offsets = kBeyond, .in_layer = true},
    WrongCase{.name = "Backward",
              .q_offsets = kBeyond,
              .k_offsets = kBeyond,
              .in_backward = true,
              .kernel = "(list of work|masks of tiles)"},
    WrongCase{.name = "ByProducts",
              .q_offsets = kBeyond,
              .k_offsets = kBeyond,
              .type = at::kFloat,
              .kernel = "check of sequences"}};

// Correct arguments.
const WrongCase kRightCase = {.name = "Right",
                              .q_offsets = kRight,
                              .k_offsets = kRight,
                              .contexts = {100, 0},
                              .targets = {200, 212},
                              .time_bias = true};

// Several processes at once, since each must start CUDA.
TEST(HstuAttentionCudaDeathTest, ErrorsOnTheDeviceFailAnAssertion) {
  std::vector<WrongCase> cases = kWrongCases;
  cases.push_back(kRightCase);
  constexpr size_t kAtOnce = 6;  // each needs a few hundred MiB of GPU memory
  for (size_t first = 0; first < cases.size(); first += kAtOnce) {
    const size_t count = std::min(kAtOnce, cases.size() - first);
    ForkedProcesses processes(static_cast<int>(count), [&](int i) {
      at::set_num_threads(1);
      // Here and not in the test, since CUDA must not be used before a fork.
      const int status = missing_gpu() ? kNoGpu : attend(cases[first + i]);
      std::fflush(nullptr);
      _exit(status);
    });
    const std::vector<Ended> ended = processes.wait();
    if (ended[0].exited_with(kNoGpu)) GTEST_SKIP() << "no GPU, or no CUDA kernels in this build";
    for (size_t i = 0; i < count; ++i) {
      const WrongCase& c = cases[first + i];
      SCOPED_TRACE(c.name);
      if (first + i == kWrongCases.size()) {  // kRightCase
        EXPECT_TRUE(ended[i].exited_with(kFine)) << ended[i].err;
        continue;
      }
      EXPECT_TRUE(ended[i].exited_with(kDeviceError)) << ended[i].err;
      EXPECT_THAT(ended[i].err,
                  testing::ContainsRegex(
                      std::string(c.kernel) +
                      "(.|\n)*Assertion `expected q_offsets and k_offsets that start with 0(.|\n)*"
                      "device-side assert triggered"));
    }
  }
}

}  // namespace
}  // namespace seqfuse::hstu_attention_errors_cuda_test
