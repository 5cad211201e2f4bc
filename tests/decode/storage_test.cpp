// Models on the CPU by the decoding operators: every cache rule against float64, weights held in 16
// bits and in int8, rows that do not depend on each other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/parallel.h"
#include "ops/torch/decode/decode.h"
#include "serving/decoding/memory_plan.h"
#include "serving/decoding/perplexity.h"
#include "serving/decoding/session.h"
#include "tests/decode/tiny_model.h"

namespace seqfuse::storage_test {
namespace {

using at::Tensor;
using kv_cache::Rule;
using models::gpt_neox::Model;
using models::gpt_neox::Storage;
using serving::Session;
using test::TinyModel;
using testing::HasSubstr;

Model model_of(const TinyModel& tiny, const test::TensorMap& tensors, at::ScalarType dtype,
               const Storage& storage = {}) {
  const auto config = tiny.model_config();
  return {config,
          models::gpt_neox::make_weights(config, tensors, dtype, at::kCPU, "memory", storage)};
}

std::vector<double> losses_of(const Model& model, const Rule& rule, int64_t tokens = 60) {
  Session session(model, rule, 1);
  return serving::token_losses(session, test::some_ids(tokens, model.config().vocab_size));
}

void expect_near(const std::vector<double>& actual, const std::vector<double>& expected,
                 double tolerance, const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (size_t i = 0; i < actual.size(); ++i) {
    ASSERT_NEAR(actual[i], expected[i], tolerance) << what << ", token " << i;
  }
}

// float64 decodes through ATen, which cache_rule_test.cpp compares with the oracle.
TEST(CpuDecoding, EveryRuleIsThatOfFloat64) {
  TinyModel tiny;
  for (const bool parallel : {true, false}) {
    tiny.parallel = parallel;
    const auto tensors = tiny.tensors();
    const Model model = model_of(tiny, tensors, at::kFloat);
    const Model reference = model_of(tiny, tensors, at::kDouble);
    Rule wrong = Rule::streaming(3, 9);
    wrong.true_distances = true;
    for (const Rule& rule :
         {Rule::full(150), Rule::window(1), Rule::window(7), Rule::window(6, 5),
          Rule::streaming(1, 0), Rule::streaming(2, 10), Rule::streaming(4, 3, 7), wrong}) {
      expect_near(losses_of(model, rule, 150), losses_of(reference, rule, 150), 2e-4, rule.text());
    }
  }
}

// Values that 16 bits hold: the same bits from weights in float32 and as the file has them.
TEST(CpuDecoding, SixteenBitWeightsGiveTheBitsOfFloat32) {
  const TinyModel tiny;
  for (const auto type : {at::kHalf, at::kBFloat16}) {
    const auto tensors = test::converted(tiny.tensors(), type);
    const auto expected = losses_of(model_of(tiny, tensors, at::kFloat), Rule::streaming(2, 20));
    const Model narrow = model_of(tiny, tensors, at::kFloat,
                                  {.linear = type, .embedding = type, .as_in_file = true});
    EXPECT_EQ(narrow.dtype(), at::kFloat);
    EXPECT_EQ(losses_of(narrow, Rule::streaming(2, 20)), expected) << type;
  }
}

TEST(CpuDecoding, AFilesFloat32TensorsStayFloat32) {
  const TinyModel tiny;
  auto tensors = test::converted(test::converted(tiny.tensors(), at::kHalf), at::kFloat);
  const auto expected = losses_of(model_of(tiny, tensors, at::kFloat), Rule::full(64));
  tensors["embed_out.weight"] = tensors["embed_out.weight"] + 1e-5;
  const auto moved = losses_of(model_of(tiny, tensors, at::kFloat), Rule::full(64));
  EXPECT_NE(moved, expected);
  for (auto& [key, tensor] : tensors) {
    if (key != "embed_out.weight") tensor = tensor.to(at::kHalf);
  }
  const Storage as_in_file = {.linear = at::kHalf, .embedding = at::kHalf, .as_in_file = true};
  EXPECT_EQ(losses_of(model_of(tiny, tensors, at::kFloat, as_in_file), Rule::full(64)), moved);
}

// int8 weights are those of a model whose linear weights are what int8 and scales mean.
TEST(CpuDecoding, Int8WeightsAreTheirMeaning) {
  for (const bool tied : {false, true}) {
    TinyModel tiny;
    tiny.tied = tied;
    const auto tensors = tiny.tensors();
    const Model model = model_of(tiny, tensors, at::kFloat, {.linear = at::kChar});
    auto meant = tensors;
    for (auto& [name, tensor] : meant) {
      if (tensor.dim() != 2 || name == "gpt_neox.embed_in.weight") continue;
      const auto rows = ops::quantize_rows(tensor);
      tensor = rows.values.to(at::kDouble) * rows.scales.to(at::kDouble).unsqueeze(1);
    }
    auto untied = tiny;
    if (tied) {
      untied.tied = false;
      const auto rows = ops::quantize_rows(tensors.at("gpt_neox.embed_in.weight"));
      meant["embed_out.weight"] =
          rows.values.to(at::kDouble) * rows.scales.to(at::kDouble).unsqueeze(1);
    }
    const auto expected = losses_of(model_of(untied, meant, at::kDouble), Rule::full(60));
    const auto actual = losses_of(model, Rule::full(60));
    expect_near(actual, expected, 2e-4, tied ? "tied" : "untied");
    EXPECT_NE(actual, losses_of(model_of(tiny, tensors, at::kFloat), Rule::full(60)));
    // A pass of many tokens goes another way.
    Session session(model, Rule::full(60), 1);
    expect_near(serving::token_losses(session, test::some_ids(60, tiny.vocab_size), 40), expected,
                2e-4, "40 tokens a pass");
  }
}

TEST(CpuDecoding, BytesAreThoseOfThePlan) {
  for (const bool tied : {false, true}) {
    TinyModel tiny;
    tiny.tied = tied;
    const auto config = tiny.model_config();
    const auto tensors = tiny.tensors();
    for (const Storage& storage :
         {Storage{}, Storage{.linear = at::kHalf, .embedding = at::kHalf},
          Storage{.linear = at::kChar}, Storage{.linear = at::kChar, .embedding = at::kBFloat16}}) {
      const auto weights =
          models::gpt_neox::make_weights(config, tensors, at::kFloat, at::kCPU, "memory", storage);
      EXPECT_EQ(weights.bytes(), models::gpt_neox::weight_bytes(config, at::kFloat, storage));
      EXPECT_EQ(weights.bytes(),
                serving::plan_memory(config, Rule::full(8), 1, at::kFloat, storage).weights);
    }
  }
}

// Logits of a row: the same bits alone and beside up to 15 others at other places, some of which stay
// as they are, for any number of threads.
TEST(CpuDecoding, ARowsBitsDependOnItAlone) {
  const TinyModel tiny;
  const auto tensors = tiny.tensors();
  constexpr int64_t kRows = 16, kSteps = 5;
  const Rule rule = Rule::streaming(2, 6);
  const auto prompt = [&](int64_t row) { return test::some_ids(1 + 2 * row % 11, 41, 3 + row); };
  // For the rows from `first` on.
  const auto logits = [&](const Model& model, int64_t first) {
    Session session(model, rule, kRows - first);
    for (int64_t row = first; row < kRows; ++row) session.extend(row - first, prompt(row));
    std::vector<Tensor> steps;
    for (int64_t step = 0; step < kSteps; ++step) {
      std::vector<int64_t> ids;
      std::vector<bool> active;
      for (int64_t row = first; row < kRows; ++row) {
        ids.push_back((row * 5 + step * 7) % 41);
        active.push_back((row + step) % 4 != 0);
      }
      active.back() = true;
      steps.push_back(session.step(ids, active)[-1]);
    }
    return at::stack(steps);
  };
  for (const auto& [dtype, linear] : {std::pair{at::kFloat, at::kFloat},
                                      {at::kFloat, at::kHalf},
                                      {at::kFloat, at::kChar},
                                      {at::kHalf, at::kHalf},
                                      {at::kBFloat16, at::kBFloat16}}) {
    const Model model = model_of(tiny, tensors, dtype, {.linear = linear});
    const Tensor alone = logits(model, kRows - 1);
    const int before = num_threads();
    for (int64_t first = 0; first < kRows; ++first) {
      set_num_threads(static_cast<int>(1 + first % 4));
      EXPECT_TRUE(at::equal(logits(model, first), alone))
          << kRows - first << " rows, " << dtype << ", weights " << linear;
    }
    set_num_threads(before);
  }
}

TEST(CpuDecoding, StorageThatCannotBeIsExplained) {
  using models::gpt_neox::check_storage;
  const auto message = [](const Storage& storage, at::ScalarType dtype, at::Device device) {
    return test::error_of([&] { check_storage(storage, dtype, device); });
  };
  const Storage int8 = {.linear = at::kChar};
  EXPECT_THAT(
      message(int8, at::kFloat, at::Device(at::kCUDA, 0)),
      HasSubstr("int8 weights on cuda:0 with --dtype float32; expected float16 or bfloat16"));
  EXPECT_EQ(message(int8, at::kHalf, at::Device(at::kCUDA, 0)), "no error");
  EXPECT_THAT(
      message(int8, at::kDouble, at::kCPU),
      HasSubstr("int8 weights with --dtype float64; expected float32, float16 or bfloat16"));
  EXPECT_THAT(message({.linear = at::kHalf}, at::kFloat, at::Device(at::kCUDA, 0)),
              HasSubstr("weights of Half need a CPU, the model is on cuda:0; --device cpu"));
  EXPECT_EQ(message({.linear = at::kHalf}, at::kHalf, at::Device(at::kCUDA, 0)), "no error");
  EXPECT_EQ(message(int8, at::kFloat, at::kCPU), "no error");
  const TinyModel tiny;
  auto tensors = tiny.tensors();
  tensors["embed_out.weight"][0][0] = std::nan("");
  EXPECT_THAT(test::error_of([&] { model_of(tiny, tensors, at::kFloat, int8); }),
              HasSubstr("embed_out.weight has values that are NaN or infinite"));
  tensors["embed_out.weight"][0][0] = 1e6;
  EXPECT_THAT(
      test::error_of([&] { model_of(tiny, tensors, at::kFloat, {.linear = at::kHalf}); }),
      HasSubstr("embed_out.weight has values beyond the range of Half; choose another --weights"));
}

}  // namespace
}  // namespace seqfuse::storage_test
