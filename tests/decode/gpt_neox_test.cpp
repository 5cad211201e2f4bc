// The model against the oracle: every variant, prefill and single steps, files of every dtype.
#include "models/gpt_neox/model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "serving/decoding/perplexity.h"
#include "serving/decoding/session.h"
#include "tests/decode/tiny_model.h"
#include "tests/temporary_directory.h"

namespace seqfuse::gpt_neox_test {
namespace {

using kv_cache::Rule;
using models::gpt_neox::Model;
using serving::Session;
using test::TinyModel;

struct Variant {
  std::string name;
  TinyModel model;
};

std::vector<Variant> variants() {
  std::vector<Variant> all;
  const auto add = [&](const std::string& name, const std::function<void(TinyModel&)>& change) {
    all.push_back({name, {}});
    change(all.back().model);
  };
  add("parallel", [](TinyModel&) {});
  add("sequential", [](TinyModel& m) { m.parallel = false; });
  add("gelu_fast", [](TinyModel& m) { m.hidden_act = "gelu_fast"; });
  add("gelu_new", [](TinyModel& m) { m.hidden_act = "gelu_new"; });
  add("tied", [](TinyModel& m) { m.tied = true; });
  add("full_rotary", [](TinyModel& m) { m.rotary_share = 1; });
  add("head_dim_20", [](TinyModel& m) { m.head_dim = 20, m.rotary_share = 0.4; });
  add("head_dim_80", [](TinyModel& m) { m.head_dim = 80, m.rotary_share = 0.25; });
  add("no_attention_bias", [](TinyModel& m) { m.attention_bias = false; });
  add("one_head", [](TinyModel& m) { m.heads = 1, m.eps = 1e-3, m.rotary_base = 500000; });
  return all;
}

class GptNeox : public testing::TestWithParam<Variant> {};

TEST_P(GptNeox, LossesAreThoseOfTheOracle) {
  const TinyModel& tiny = GetParam().model;
  const TemporaryDirectory directory;
  const auto tensors = tiny.tensors();
  test::write_model(directory.path(), tiny.config(), tensors);
  const Model model = Model::load(directory.path(), at::kDouble, at::kCPU);
  const auto ids = test::some_ids(30, tiny.vocab_size);
  const auto expected = oracle::GptNeox(tiny.oracle_options(), tensors).losses(ids);
  for (const int64_t tokens_per_pass : {1, 7, 29}) {
    Session session(model, Rule::full(29), 1);
    const auto losses = serving::token_losses(session, ids, tokens_per_pass);
    ASSERT_EQ(losses.size(), expected.size());
    for (size_t i = 0; i < losses.size(); ++i) {
      EXPECT_NEAR(losses[i], expected[i], 1e-12) << i << ", " << tokens_per_pass << " a pass";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Variants, GptNeox, testing::ValuesIn(variants()),
                         [](const auto& test) { return test.param.name; });

TEST(GptNeoxFiles, DtypesAndFormsOfFilesAgree) {
  const TinyModel tiny;
  // Values exact in every dtype, so that all files contain the same model.
  const auto tensors = test::converted(test::converted(tiny.tensors(), at::kBFloat16), at::kDouble);
  const auto ids = test::some_ids(12, tiny.vocab_size);
  const auto losses = [&](const std::filesystem::path& path) {
    const Model model = Model::load(path, at::kDouble, at::kCPU);
    Session session(model, Rule::full(16), 1);
    return serving::token_losses(session, ids);
  };
  const TemporaryDirectory reference;
  test::write_model(reference.path(), tiny.config(), tensors);
  const auto expected = losses(reference.path());
  for (const auto dtype : {at::kFloat, at::kHalf, at::kBFloat16}) {
    const TemporaryDirectory directory;
    auto stored = test::converted(tensors, dtype);
    // Buffers that old files contain.
    stored["gpt_neox.layers.0.attention.bias"] = at::ones({1, 1, 4, 4}, at::kBool);
    stored["gpt_neox.layers.0.attention.masked_bias"] = at::tensor(-1e9, at::kFloat);
    stored["gpt_neox.layers.1.attention.rotary_emb.inv_freq"] = at::ones({2}, at::kFloat);
    test::write_sharded(directory.path(), tiny.config(/*old_form=*/true), stored, 3);
    // float16 underflows.
    EXPECT_THAT(losses(directory.path()),
                testing::Pointwise(testing::DoubleNear(dtype == at::kHalf ? 1e-3 : 0), expected))
        << dtype;
  }
}

TEST(GptNeoxFiles, NamesOfOtherWriters) {
  const TinyModel tiny;
  auto tensors = tiny.tensors();
  const auto ids = test::some_ids(8, tiny.vocab_size);
  const auto losses = [&] {
    const TemporaryDirectory directory;
    test::write_model(directory.path(), tiny.config(), tensors);
    const Model model = Model::load(directory.path(), at::kDouble, at::kCPU);
    Session session(model, Rule::full(8), 1);
    return serving::token_losses(session, ids);
  };
  const auto expected = losses();
  auto output = tensors.extract("embed_out.weight");
  output.key() = "lm_head.weight";
  tensors.insert(std::move(output));
  EXPECT_EQ(losses(), expected);
}

TEST(GptNeoxFiles, LowPrecisionIsNearFloat64) {
  const TinyModel tiny;
  const TemporaryDirectory directory;
  test::write_model(directory.path(), tiny.config(), test::converted(tiny.tensors(), at::kFloat));
  const auto ids = test::some_ids(40, tiny.vocab_size);
  const auto mean = [&](at::ScalarType dtype, int64_t tokens_per_pass) {
    const Model model = Model::load(directory.path(), dtype, at::kCPU);
    Session session(model, Rule::streaming(2, 10), 1);
    double sum = 0;
    for (const double loss : serving::token_losses(session, ids, tokens_per_pass)) sum += loss / 39;
    return sum;
  };
  const double expected = mean(at::kDouble, 1);
  for (const int64_t tokens_per_pass : {1, 13}) {
    EXPECT_NEAR(mean(at::kFloat, tokens_per_pass), expected, 1e-6 * expected);
    EXPECT_NEAR(mean(at::kHalf, tokens_per_pass), expected, 5e-3 * expected);
    EXPECT_NEAR(mean(at::kBFloat16, tokens_per_pass), expected, 5e-2 * expected);
  }
}

}  // namespace
}  // namespace seqfuse::gpt_neox_test
