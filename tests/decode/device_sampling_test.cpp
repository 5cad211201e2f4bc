// Tokens picked by tensor operations, on the CPU and on a GPU, against next_token.
#include "serving/decoding/device_sampling.h"

#include <gtest/gtest.h>
#include <torch/cuda.h>

#include <limits>
#include <span>

#include "models/gpt_neox/gpu_step.h"
#include "serving/decoding/session.h"
#include "tests/decode/sampling_cases.h"
#include "tests/decode/tiny_model.h"

namespace seqfuse::device_sampling_test {
namespace {

using serving::SamplingOptions;

constexpr int64_t kRows = 4, kVocabulary = 3000;

std::span<const float> row_of(const at::Tensor& logits, int64_t row) {
  return {logits.const_data_ptr<float>() + row * kVocabulary, static_cast<size_t>(kVocabulary)};
}

// Logits in float16, with many ties.
void expect_host_tokens(const SamplingOptions& options, at::Device device) {
  std::vector<std::vector<int64_t>> texts;
  for (int64_t row = 0; row < kRows; ++row) texts.push_back(test::some_ids(50, kVocabulary, row));
  serving::DeviceSampling sampling(options, {10, 11, 12, 13}, texts, 1, kVocabulary, device);
  const at::Tensor active = at::ones({kRows}, at::TensorOptions(device).dtype(at::kLong));
  at::Tensor ids = at::zeros_like(active);
  for (int64_t row = 0; row < kRows; ++row) ids[row] = texts[row].back();
  at::manual_seed(7);
  for (uint64_t step = 1; step < 20; ++step) {
    const at::Tensor logits = (at::randn({kRows, kVocabulary}) * 3).to(at::kHalf);
    sampling.pick(logits.to(device), active, ids);
    const at::Tensor host = logits.to(at::kFloat);
    for (int64_t row = 0; row < kRows; ++row) {
      const int64_t expected =
          serving::next_token(row_of(host, row), options, texts[row], 10 + row, step);
      EXPECT_EQ(ids[row].item<int64_t>(), expected)
          << "row " << row << ", step " << step << ", temperature " << options.temperature;
      texts[row].push_back(expected);
    }
  }
}

TEST(DeviceSampling, PicksWhatTheHostPicks) {
  for (const SamplingOptions& options : test::samplings()) expect_host_tokens(options, at::kCPU);
}

TEST(DeviceSamplingCuda, PicksWhatTheHostPicks) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU on this machine";
  for (const SamplingOptions& options : test::samplings()) {
    expect_host_tokens(options, at::Device(at::kCUDA, 0));
  }
}

TEST(DeviceSampling, ARowThatIsNotActiveKeepsItsCount) {
  const SamplingOptions options{.temperature = 1, .seed = 3};
  serving::DeviceSampling sampling(options, {1, 2}, {{5}, {5}}, 0, kVocabulary, at::kCPU);
  const at::Tensor active = at::tensor({1, 0}, at::kLong), logits = at::zeros({2, kVocabulary});
  at::Tensor ids = at::tensor({5, 5}, at::kLong);
  for (int i = 0; i < 3; ++i) {
    sampling.pick(logits, active, ids);
    const auto expected = [&](int64_t row, uint64_t step) {
      return serving::next_token(row_of(logits, row), options, {5}, 1 + row, step);
    };
    EXPECT_EQ(ids[0].item<int64_t>(), expected(0, i));
    EXPECT_EQ(ids[1].item<int64_t>(), expected(1, 0));
  }
}

TEST(DeviceSampling, NanIsMarked) {
  for (const SamplingOptions& options :
       {SamplingOptions{.temperature = 1}, SamplingOptions{.repetition_penalty = 2}}) {
    serving::DeviceSampling sampling(options, {1, 2}, {{5}, {5}}, 0, kVocabulary, at::kCPU);
    at::Tensor ids = at::tensor({5, 5}, at::kLong), logits = at::zeros({2, kVocabulary});
    logits[1][77] = std::numeric_limits<float>::quiet_NaN();
    sampling.pick(logits, at::ones({2}, at::kLong), ids);
    EXPECT_GE(ids[0].item<int64_t>(), 0);
    EXPECT_EQ(ids[1].item<int64_t>(), ops::marked_nan(77));
    EXPECT_EQ(ops::token_of_nan(ids[1].item<int64_t>()), 77);
    logits[1][5] = std::numeric_limits<float>::quiet_NaN();  // the first of them is named
    sampling.pick(logits, at::ones({2}, at::kLong), ids);
    EXPECT_EQ(ids[1].item<int64_t>(), ops::marked_nan(5));
  }
}

TEST(GpuStep, NotOnACpu) {
  const test::TinyModel tiny;
  const auto config = tiny.model_config();
  const models::gpt_neox::Model model(
      config,
      models::gpt_neox::make_weights(config, tiny.tensors(), at::kFloat, at::kCPU, "memory"));
  const auto rule = kv_cache::Rule::full(10);
  EXPECT_EQ(models::gpt_neox::GpuStep::why_not(model, rule, 1), "the model is on a CPU");
  EXPECT_FALSE(serving::Session(model, rule, 1).picks_on_device());
}

}  // namespace
}  // namespace seqfuse::device_sampling_test
