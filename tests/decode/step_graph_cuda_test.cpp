// Decoding steps on a GPU as one CUDA graph: against the CPU in float64, row by row the same bits in
// any batch, tokens picked on the device as on the host.
#include "serving/decoding/step_graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/cuda.h>

#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <span>

#include "models/gpt_neox/gpu_step.h"
#include "serving/decoding/generate.h"
#include "serving/decoding/ladder.h"
#include "serving/decoding/launch_count.h"
#include "tests/decode/sampling_cases.h"
#include "tests/decode/tiny_model.h"

namespace seqfuse::step_graph_cuda_test {
namespace {

using kv_cache::Rule;
using models::gpt_neox::Model;
using serving::SamplingOptions;
using serving::Session;
using test::TinyModel;

#define NEEDS_A_GPU() \
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU on this machine"

// Weights rounded to dtype, held and computed as `as`.
Model model_of(const TinyModel& tiny, at::ScalarType dtype, at::ScalarType as, at::Device device,
               const models::gpt_neox::Storage& storage = {}) {
  const auto config = tiny.model_config();
  const auto tensors = test::converted(tiny.tensors(), dtype);
  return {config, models::gpt_neox::make_weights(config, tensors, as, device, "memory", storage)};
}

const at::Device kGpu(at::kCUDA, 0);

TinyModel wide() {
  TinyModel tiny;
  tiny.heads = 4, tiny.head_dim = 80, tiny.inner = 1280, tiny.vocab_size = 1000;
  tiny.rotary_share = 0.25;
  return tiny;
}

TinyModel with_head_dim(int64_t heads, int64_t head_dim) {
  TinyModel tiny = wide();
  tiny.heads = heads, tiny.head_dim = head_dim, tiny.inner = 160, tiny.rotary_share = 0.5;
  return tiny;
}

std::vector<TinyModel> shapes() {
  TinyModel small, sequential = wide(), tied = wide(), plain = wide();
  small.head_dim = 16, small.inner = 48;
  sequential.parallel = false;
  tied.tied = true, tied.hidden_act = "gelu_new", tied.rotary_share = 1;
  plain.attention_bias = false;
  // Heads whose rows do not begin at multiples of 16 bytes.
  return {small,
          wide(),
          sequential,
          tied,
          plain,
          with_head_dim(8, 4),
          with_head_dim(4, 20),
          with_head_dim(2, 252)};
}

// The largest difference of logits over steps, relative to the largest logit.
double worst_difference(const Model& on_gpu, const Model& expected, const Rule& rule, int64_t steps,
                        int64_t prompt_length = 5,
                        const models::gpt_neox::StepOptions& options = {}) {
  Session session(on_gpu, rule, 1, options), reference(expected, rule, 1);
  EXPECT_TRUE(session.picks_on_device());
  const auto prompt = test::some_ids(prompt_length, on_gpu.config().vocab_size);
  session.extend(0, prompt);
  reference.extend(0, prompt);
  double worst = 0, largest = 0;
  for (const int64_t id : test::some_ids(steps, on_gpu.config().vocab_size, 3)) {
    const at::Tensor given = session.step({id}, {true}).to(at::kCPU).to(at::kDouble);
    const at::Tensor wanted = reference.step({id}, {true}).to(at::kDouble);
    EXPECT_TRUE(given.isfinite().all().item<bool>());
    worst = std::max(worst, (given - wanted).abs().max().item<double>());
    largest = std::max(largest, wanted.abs().max().item<double>());
  }
  return worst / largest;
}

TEST(StepGraphCuda, LogitsAreThoseOfTheCpuInFloat64) {
  NEEDS_A_GPU();
  for (const TinyModel& tiny : shapes()) {
    for (const auto dtype : {at::kHalf, at::kBFloat16}) {
      const Model expected = model_of(tiny, dtype, at::kDouble, at::kCPU);
      const Model model = model_of(tiny, dtype, dtype, kGpu);
      for (const Rule& rule : {Rule::full(200), Rule::streaming(2, 9), Rule::window(20, 3)}) {
        EXPECT_LT(worst_difference(model, expected, rule, 40), dtype == at::kHalf ? 0.01 : 0.06)
            << rule.text() << ", " << dtype << ", parallel " << tiny.parallel << ", head_dim "
            << tiny.head_dim;
      }
    }
  }
}

// More than one unit of attention (128 slots), and several chunks of k in the second of the MLP.
TEST(StepGraphCuda, LongTextsAndWideLayers) {
  NEEDS_A_GPU();
  for (TinyModel tiny : {wide(), with_head_dim(4, 20)}) {
    tiny.inner = 5120, tiny.layers = 1;
    const Model expected = model_of(tiny, at::kHalf, at::kDouble, at::kCPU);
    const Model model = model_of(tiny, at::kHalf, at::kHalf, kGpu);
    for (const Rule& rule : {Rule::full(400), Rule::streaming(4, 250)}) {
      EXPECT_LT(worst_difference(model, expected, rule, 10, 300), 0.01)
          << rule.text() << ", head_dim " << tiny.head_dim;
    }
  }
}

// Every choice of what a step is made of (serving/decoding/ladder.h) computes the same; with and without a
// graph, and with and without early starts, to the bit.
TEST(StepGraphCuda, PartsOfAStepDoNotChangeWhatItComputes) {
  NEEDS_A_GPU();
  for (const bool parallel : {true, false}) {
    for (const bool int8 : {false, true}) {
      TinyModel tiny = wide();
      tiny.parallel = parallel, tiny.inner = 5120;
      models::gpt_neox::Storage storage;
      if (int8) storage.linear = at::kChar;
      const Model expected =
          model_of(tiny, at::kHalf, int8 ? at::kFloat : at::kDouble, at::kCPU, storage);
      const Model model = model_of(tiny, at::kHalf, at::kHalf, kGpu, storage);
      std::map<std::string, at::Tensor> last;  // logits by what may change bits
      for (const serving::Rung& rung : serving::ladder_rungs()) {
        if (rung.int8 || !(rung.step.graph || rung.step.own_kernels)) continue;
        const double worst =
            worst_difference(model, expected, Rule::streaming(4, 150), 12, 160, rung.step);
        EXPECT_LT(worst, 0.01) << rung.name << ", parallel " << parallel << ", int8 " << int8;
        Session session(model, Rule::streaming(4, 150), 2, rung.step);
        at::Tensor logits;
        for (const int64_t id : test::some_ids(170, 1000)) {
          logits = session.step({id, (id + 1) % 1000}, {true, true});
        }
        const auto& step = rung.step;
        const std::string key = std::to_string(step.own_kernels) +
                                std::to_string(step.fused_norms) +
                                std::to_string(step.merged_linears);
        const auto [place, is_new] = last.emplace(key, logits.clone());
        EXPECT_TRUE(is_new || at::equal(place->second, logits)) << rung.name;
      }
    }
  }
}

// A step that begins before the host knows what the last one picked.
TEST(StepGraphCuda, RunsOnWithoutTheHost) {
  NEEDS_A_GPU();
  const Model model = model_of(wide(), at::kHalf, at::kHalf, kGpu);
  for (const SamplingOptions& sampling : {SamplingOptions{}, SamplingOptions{.temperature = 1}}) {
    const Rule rule = Rule::full(60);
    Session waiting(model, rule, 2), running(model, rule, 2);
    for (Session* session : {&waiting, &running}) {
      session->extend(0, test::some_ids(9, 1000));
      session->extend(1, test::some_ids(4, 1000));
      session->sample_on_device(sampling, {{1}, {2}}, 0, 0);
    }
    std::vector<int64_t> ids = {7, 8};
    running.step(ids, {true, true});
    for (int i = 0; i < 30; ++i) {
      waiting.step(ids, {true, true});
      ids = waiting.picked();
      running.step_on();
      EXPECT_EQ(running.picked(1), ids) << "step " << i;
    }
    waiting.step(ids, {true, true});
    EXPECT_EQ(running.picked(), waiting.picked());
  }
}

// copy, extend and a row that was not active, between steps of the graph.
TEST(StepGraphCuda, TextsChangeBetweenSteps) {
  NEEDS_A_GPU();
  const Model model = model_of(wide(), at::kHalf, at::kHalf, kGpu);
  const Rule rule = Rule::full(100);
  Session session(model, rule, 2), fresh(model, rule, 1);
  const auto first = test::some_ids(9, 1000), more = test::some_ids(6, 1000, 4);
  session.extend(0, first);
  session.step({11, 0}, {true, false});
  session.copy(0, 1);
  session.step({12, 0}, {true, false});
  session.extend(1, more);
  const at::Tensor logits = session.step({13, 14}, {true, true}).clone();
  std::vector<int64_t> text = first;
  text.push_back(11);
  text.insert(text.end(), more.begin(), more.end());
  fresh.extend(0, text);
  const at::Tensor expected = fresh.step({14}, {true})[0];
  EXPECT_LT((logits[1] - expected).abs().max().item<double>(),
            0.01 * expected.abs().max().item<double>());
}

TEST(StepGraphCuda, Int8WeightsAreThoseOfTheCpu) {
  NEEDS_A_GPU();
  const models::gpt_neox::Storage int8 = {.linear = at::kChar};
  for (const bool parallel : {true, false}) {
    TinyModel tiny = wide();
    tiny.parallel = parallel;
    const Model expected = model_of(tiny, at::kHalf, at::kFloat, at::kCPU, int8);
    const Model model = model_of(tiny, at::kHalf, at::kHalf, kGpu, int8);
    EXPECT_LT(worst_difference(model, expected, Rule::streaming(4, 50), 80), 0.01);
  }
}

// Rows with texts of different lengths; some end while others go on.
TEST(StepGraphCuda, ARowHasTheSameBitsInAnyBatch) {
  NEEDS_A_GPU();
  for (const bool int8 : {false, true}) {
    models::gpt_neox::Storage storage;
    if (int8) storage.linear = at::kChar;
    const Model model = model_of(wide(), at::kHalf, at::kHalf, kGpu, storage);
    const Rule rule = Rule::streaming(4, 200);
    constexpr int64_t kSteps = 30;
    for (const int64_t rows : {2, 5, 9, 16}) {
      Session together(model, rule, rows);
      std::vector<std::unique_ptr<Session>> alone;
      for (int64_t row = 0; row < rows; ++row) {
        const auto prompt = test::some_ids(1 + 37 * row, 1000, row);
        together.extend(row, prompt);
        alone.push_back(std::make_unique<Session>(model, rule, 1));
        alone.back()->extend(0, prompt);
      }
      for (int64_t step = 0; step < kSteps; ++step) {
        const auto ids = test::some_ids(rows, 1000, 100 + step);
        std::vector<bool> active;
        for (int64_t row = 0; row < rows; ++row) active.push_back(step < kSteps - row);
        const at::Tensor logits = together.step(ids, active);
        for (int64_t row = 0; row < rows; ++row) {
          if (!active[row]) continue;
          EXPECT_TRUE(at::equal(logits[row], alone[row]->step({ids[row]}, {true})[0]))
              << rows << " rows, row " << row << ", step " << step << ", int8 " << int8;
        }
      }
    }
  }
}

TEST(StepGraphCuda, AStepIsOneLaunch) {
  NEEDS_A_GPU();
  const Model model = model_of(wide(), at::kHalf, at::kHalf, kGpu);
  Session session(model, Rule::full(100), 2);
  session.extend(0, test::some_ids(3, 1000));
  session.extend(1, test::some_ids(7, 1000));
  session.step({1, 2}, {true, true});
  const auto launches = serving::count_launches(kGpu, [&] {
    const auto ids = session.picked();
    session.step(ids, {true, true});
    session.picked();
  });
  if (!launches) GTEST_SKIP() << "the profiler does not see the GPU";
  EXPECT_EQ(*launches, 1);
}

TEST(StepGraphCuda, AFullCacheIsAnError) {
  NEEDS_A_GPU();
  const Model model = model_of(wide(), at::kHalf, at::kHalf, kGpu);
  Session session(model, Rule::full(8), 1);
  session.extend(0, test::some_ids(7, 1000));
  session.step({1}, {true});
  EXPECT_THAT(test::error_of([&] { session.step({1}, {true}); }),
              testing::HasSubstr("the full cache of 8 tokens has no room for another"));
  EXPECT_THAT(test::error_of([&] { session.step({1000}, {true}); }),
              testing::HasSubstr("the id 1000 is not in the model's vocabulary of 1000"));
}

TEST(DeviceSamplingCuda, TextsAreThoseOfTheHost) {
  NEEDS_A_GPU();
  TinyModel tiny = wide();
  tiny.vocab_size = 6001;
  const Model model = model_of(tiny, at::kHalf, at::kHalf, kGpu);
  auto with_greedy = test::samplings();
  with_greedy.push_back({});
  const std::vector<std::vector<int64_t>> prompts = {
      test::some_ids(3, 1000), test::some_ids(40, 1000, 9), {7}};
  for (const SamplingOptions& options : with_greedy) {
    Session session(model, Rule::streaming(2, 30), 3);
    const auto results = serving::generate(
        session, prompts, {.max_new_tokens = 25, .sampling = options}, /*first_text=*/5);
    for (size_t i = 0; i < prompts.size(); ++i) {
      // The host's choices along the same text, from the logits of the same steps.
      Session again(model, Rule::streaming(2, 30), 1);
      std::vector<int64_t> text = prompts[i];
      at::Tensor logits = again.extend(0, text);
      for (size_t n = 0; n < results[i].ids.size(); ++n) {
        const at::Tensor host = logits.to(at::kCPU).to(at::kFloat).contiguous().view({-1});
        const std::span<const float> values(host.const_data_ptr<float>(), 6001);
        ASSERT_EQ(results[i].ids[n], serving::next_token(values, options, text, 5 + i, n))
            << "text " << i << ", token " << n;
        text.push_back(results[i].ids[n]);
        logits = again.step({text.back()}, {true})[0];
      }
    }
  }
}

TEST(DeviceSamplingCuda, NanIsAnError) {
  NEEDS_A_GPU();
  TinyModel tiny = wide();
  const Model model = model_of(tiny, at::kHalf, at::kHalf, kGpu);
  // A file with NaN is refused, so it is written into the model here.
  const_cast<at::Tensor&>(model.weights().norm_weight)
      .fill_(std::numeric_limits<float>::quiet_NaN());
  for (const SamplingOptions& options : {SamplingOptions{}, SamplingOptions{.temperature = 1}}) {
    Session session(model, Rule::full(50), 1);
    session.sample_on_device(options, {{1}}, 0, 0);
    session.step({1}, {true});
    EXPECT_THAT(test::error_of([&] { session.picked(); }),
                testing::HasSubstr("the logit of token 0 is NaN"));
  }
}

// The host looks at a step when the next one has run, with other logits: the error still names the token.
TEST(DeviceSamplingCuda, NanIsNamedAStepLater) {
  NEEDS_A_GPU();
  const Model model = model_of(wide(), at::kHalf, at::kHalf, kGpu);
  const at::Tensor row = model.weights().output.weight[7], good = row.clone();
  for (const SamplingOptions& options : {SamplingOptions{}, SamplingOptions{.temperature = 1}}) {
    Session session(model, Rule::full(50), 2);
    session.sample_on_device(options, {{1}, {1}}, 0, 0);
    row.fill_(std::numeric_limits<float>::quiet_NaN());
    session.step({1, 2}, {true, true});
    row.copy_(good);
    session.step_on();
    EXPECT_THAT(test::error_of([&] { session.picked(1); }),
                testing::HasSubstr("the logit of token 7 is NaN"));
  }
}

TEST(GpuStepCuda, SaysWhyNot) {
  NEEDS_A_GPU();
  using models::gpt_neox::GpuStep;
  TinyModel odd = wide();
  odd.head_dim = 18, odd.rotary_share = 1;
  const Rule rule = Rule::full(10);
  const Model odd_model = model_of(odd, at::kHalf, at::kHalf, kGpu);
  EXPECT_EQ(GpuStep::why_not(odd_model, rule, 1),
            "head_dim is 18; expected a multiple of 4, at most 256");
  const Model model = model_of(wide(), at::kHalf, at::kHalf, kGpu);
  EXPECT_EQ(GpuStep::why_not(model, rule, 17), "17 texts; at most 16");
  EXPECT_EQ(GpuStep::why_not(model, Rule::recompute(0, 9), 1), "the recompute rule has no cache");
  EXPECT_EQ(GpuStep::why_not(model_of(wide(), at::kHalf, at::kFloat, kGpu), rule, 1),
            "the model is Float; expected Half or BFloat16");
  // And it is decoded all the same.
  Session session(odd_model, rule, 1);
  EXPECT_FALSE(session.picks_on_device());
  EXPECT_TRUE(session.step({1}, {true}).isfinite().all().item<bool>());
}

}  // namespace
}  // namespace seqfuse::step_graph_cuda_test
