// Models of published shapes: as many parameters as published, and a model that runs.
#include "serving/decoding/random_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/gpt_neox/model.h"
#include "serving/decoding/session.h"
#include "tests/decode/tiny_model.h"

namespace seqfuse::random_model_test {
namespace {

int64_t parameters(const std::string& name) {
  return models::gpt_neox::weight_bytes(serving::named_shape(name), at::kFloat) / 4;
}

TEST(RandomModel, ShapesHaveAsManyParametersAsPublished) {
  EXPECT_EQ(parameters("pythia-70m"), 70426624);
  EXPECT_EQ(parameters("pythia-160m"), 162322944);
  EXPECT_EQ(parameters("pythia-410m"), 405334016);
  EXPECT_EQ(parameters("pythia-1b"), 1011781632);
  EXPECT_EQ(parameters("pythia-1.4b"), 1414647808);
  EXPECT_EQ(parameters("pythia-2.8b"), 2775208960);
  EXPECT_EQ(parameters("pythia-6.9b"), 6857302016);
  EXPECT_EQ(parameters("pythia-12b"), 11846072320);
  EXPECT_EQ(parameters("gpt-neox-20b"), 20554567680);
  EXPECT_THAT(test::error_of([] { serving::named_shape("pythia-2b"); }),
              testing::HasSubstr("there is no shape 'pythia-2b'"));
}

TEST(RandomModel, MakesAModelThatRuns) {
  for (const bool variant : {false, true}) {
    models::gpt_neox::Config config = serving::named_shape("pythia-70m");
    config.vocab_size = 40, config.hidden_size = 32, config.num_heads = 2;
    config.intermediate_size = 128, config.num_layers = 2;
    config.tied_output = variant, config.attention_bias = !variant;
    for (const auto dtype : {at::kFloat, at::kHalf, at::kBFloat16}) {
      const models::gpt_neox::Model model(
          config,
          models::gpt_neox::make_weights(config, serving::random_tensors(config, dtype, at::kCPU),
                                         dtype, at::kCPU, "random"));
      serving::Session session(model, kv_cache::Rule::full(8), 1);
      const at::Tensor logits = session.extend(0, std::vector<int64_t>{1, 2, 3});
      EXPECT_TRUE(logits.isfinite().all().item<bool>());
      EXPECT_GT((logits.max() - logits.min()).item<double>(), 0);
    }
  }
}

}  // namespace
}  // namespace seqfuse::random_model_test
