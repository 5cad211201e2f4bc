// Damaged and unsuitable checkpoints are refused by name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <limits>

#include "models/gpt_neox/model.h"
#include "serving/decoding/memory_plan.h"
#include "serving/decoding/session.h"
#include "tests/decode/tiny_model.h"
#include "tests/temporary_directory.h"

namespace seqfuse::faults_test {
namespace {

namespace fs = std::filesystem;
using models::gpt_neox::load_config;
using models::gpt_neox::Model;
using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

class Faults : public testing::Test {
 protected:
  std::string load_error(at::ScalarType dtype = at::kFloat) const {
    return test::error_of([&] { Model::load(path(), dtype, at::kCPU); });
  }
  std::string config_error(const json& config) const {
    test::write_json(path() / "config.json", config);
    return test::error_of([&] { load_config(path()); });
  }
  void write(const test::TensorMap& tensors) const {
    test::write_model(path(), tiny_.config(), tensors);
  }
  fs::path path() const { return directory_.path(); }

  test::TinyModel tiny_;
  TemporaryDirectory directory_;
  test::TensorMap tensors_ = test::converted(tiny_.tensors(), at::kFloat);
};

constexpr const char* kDense = "gpt_neox.layers.1.attention.dense.weight";

TEST_F(Faults, ConfigsOfOtherModels) {
  json config = tiny_.config();
  EXPECT_EQ(config_error(config), "no error");
  config["model_type"] = "llama";
  EXPECT_THAT(config_error(config),
              AllOf(HasSubstr("config.json"), HasSubstr("'llama'"), HasSubstr("only gpt_neox")));
  config.erase("model_type");
  EXPECT_THAT(config_error(config), HasSubstr("model_type is missing"));
  config = tiny_.config();
  config["hidden_act"] = "gelu_fst";
  EXPECT_THAT(config_error(config),
              AllOf(HasSubstr("hidden_act is 'gelu_fst'"), HasSubstr("did you mean 'gelu_fast'")));
  config["hidden_act"] = "relu";
  EXPECT_THAT(config_error(config), HasSubstr("supported are gelu, gelu_fast, gelu_new"));
  config = tiny_.config();
  config["rope_parameters"]["rope_type"] = "yarn";
  EXPECT_THAT(config_error(config), HasSubstr("rope_type is 'yarn'"));
  config = tiny_.config(/*old_form=*/true);
  config["rope_scaling"] = {{"type", "linear"}};
  EXPECT_THAT(config_error(config), HasSubstr("rope_scaling is set"));
}

TEST_F(Faults, ConfigsThatDoNotFit) {
  json config = tiny_.config();
  config["rope_parameters"]["partial_rotary_factor"] = 0.4;  // 3 of 8
  EXPECT_THAT(config_error(config),
              HasSubstr("0.4 makes 3 of 8 dimensions of a head rotary; expected an even number"));
  config["rope_parameters"]["partial_rotary_factor"] = 1.5;
  EXPECT_THAT(config_error(config), HasSubstr("1.5 makes 12 of 8"));
  config = tiny_.config();
  config["num_attention_heads"] = 3;
  EXPECT_THAT(config_error(config), HasSubstr("hidden_size 16 is not a multiple of"));
  config = tiny_.config();
  config.erase("vocab_size");
  EXPECT_THAT(config_error(config), HasSubstr("vocab_size is missing"));
  config["vocab_size"] = "many";
  EXPECT_THAT(config_error(config), HasSubstr("vocab_size is \"many\"; expected a whole number"));
  config = tiny_.config();
  config["eos_token_id"] = 41;
  EXPECT_THAT(config_error(config), HasSubstr("eos_token_id is 41; expected ids from 0 to 40"));
  std::ofstream(path() / "config.json") << "{";
  EXPECT_THAT(test::error_of([&] { load_config(path()); }), HasSubstr("not valid JSON"));
  EXPECT_THAT(test::error_of([&] { load_config(path() / "none"); }), HasSubstr("is not a folder"));
  fs::remove(path() / "config.json");
  EXPECT_THAT(test::error_of([&] { load_config(path()); }), HasSubstr("has no config.json"));
}

TEST_F(Faults, GenerationConfigNamesTheEnds) {
  test::write_json(path() / "config.json", tiny_.config());
  EXPECT_THAT(load_config(path()).eos_ids, testing::ElementsAre(0));
  test::write_json(path() / "generation_config.json", {{"eos_token_id", {3, 5}}});
  EXPECT_THAT(load_config(path()).eos_ids, testing::ElementsAre(3, 5));
}

TEST_F(Faults, TensorsThatAreMissingOrUnknown) {
  auto renamed = tensors_;
  auto node = renamed.extract(kDense);
  node.key() = "gpt_neox.layers.1.attention.dense.wieght";
  renamed.insert(std::move(node));
  write(renamed);
  EXPECT_THAT(load_error(), AllOf(HasSubstr("model.safetensors"), HasSubstr(kDense),
                                  HasSubstr("is missing"), HasSubstr("dense.wieght")));
  auto more = tensors_;
  more["gpt_neox.layers.2.input_layernorm.bias"] = at::zeros({16});
  write(more);
  EXPECT_THAT(load_error(), AllOf(HasSubstr("1 tensors are not of a GPT-NeoX"),
                                  HasSubstr("layers.2.input_layernorm.bias")));
  auto without = tensors_;
  without.erase("embed_out.weight");
  write(without);
  EXPECT_THAT(load_error(), HasSubstr("the tensor embed_out.weight is missing"));
}

TEST_F(Faults, TensorsOfAnotherShapeOrDtype) {
  auto wrong = tensors_;
  wrong[kDense] = at::zeros({16, 15});
  write(wrong);
  EXPECT_THAT(load_error(),
              AllOf(HasSubstr(kDense), HasSubstr("is [16, 15]; config.json makes it [16, 16]")));
  wrong[kDense] = at::ones({16, 16}, at::kBool);
  write(wrong);
  EXPECT_THAT(load_error(), AllOf(HasSubstr(kDense), HasSubstr("is Bool; expected float32")));
}

TEST_F(Faults, ValuesThatAreNotFinite) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    auto broken = tensors_;
    broken[kDense] = broken[kDense].clone();
    broken[kDense][15][15] = bad;
    write(broken);
    EXPECT_THAT(load_error(), AllOf(HasSubstr(kDense), HasSubstr("NaN or infinite")));
  }
  auto large = tensors_;
  large[kDense] = large[kDense].clone();
  large[kDense][0][0] = 1e6;  // float16 ends at 65504
  write(large);
  EXPECT_EQ(load_error(), "no error");
  EXPECT_THAT(load_error(at::kHalf),
              AllOf(HasSubstr(kDense), HasSubstr("beyond the range of Half")));
}

TEST_F(Faults, Shards) {
  test::write_sharded(path(), tiny_.config(), tensors_, 3);
  EXPECT_EQ(load_error(), "no error");
  const fs::path part = path() / "part-1.safetensors";
  const auto size = fs::file_size(part);
  fs::resize_file(part, size - 4);
  EXPECT_THAT(load_error(), AllOf(HasSubstr("model.safetensors.index.json names part-1"),
                                  HasSubstr("part-1.safetensors"), HasSubstr("truncated")));
  fs::remove(part);
  EXPECT_THAT(load_error(), AllOf(HasSubstr("names part-1.safetensors for the tensor"),
                                  HasSubstr("cannot open")));
  test::write_tensors(part, {{"gpt_neox.other", at::zeros({2})}});
  EXPECT_THAT(load_error(), AllOf(HasSubstr("in part-1.safetensors, which does not have it"),
                                  HasSubstr("its 1 tensors are gpt_neox.other")));
}

TEST_F(Faults, PromptsThatCannotBe) {
  write(tensors_);
  const Model model = Model::load(path(), at::kFloat, at::kCPU);
  serving::Session session(model, kv_cache::Rule::full(4), 1);
  const auto extend = [&](const std::vector<int64_t>& ids) {
    return test::error_of([&] { session.extend(0, ids); });
  };
  EXPECT_THAT(extend({}), HasSubstr("the prompt has no tokens"));
  EXPECT_THAT(extend({1, 41}), HasSubstr("the id 41 is not in the model's vocabulary of 41"));
  EXPECT_THAT(extend({-1}), HasSubstr("the id -1"));
  EXPECT_THAT(extend({1, 2, 3, 4, 5}), HasSubstr("5 tokens do not fit into the full cache of 4"));
  EXPECT_EQ(extend({1, 2, 3, 4}), "no error");
  EXPECT_THAT(test::error_of([&] { session.step({1}, {true}); }),
              HasSubstr("the full cache of 4 tokens has no room"));
}

TEST(MemoryPlan, SaysWhatFits) {
  models::gpt_neox::Config config;
  config.vocab_size = 50304, config.hidden_size = 2560, config.intermediate_size = 10240;
  config.num_layers = 32, config.num_heads = 32;
  const auto plan = serving::plan_memory(config, kv_cache::Rule::full(2048), 16, at::kHalf);
  EXPECT_EQ(plan.weights, 2775208960LL * 2);
  EXPECT_EQ(plan.cache, 327680LL * 2048 * 16);
  EXPECT_EQ(test::error_of([&] { serving::check_memory(plan, plan.total()); }), "no error");
  const int64_t room = plan.weights + plan.work + 327680LL * 2048 * 5;
  EXPECT_THAT(test::error_of([&] { serving::check_memory(plan, room); }),
              AllOf(HasSubstr("a cache of 640 tokens for 16 texts"),
                    HasSubstr("5 texts with a cache of 2048 tokens")));
  EXPECT_THAT(test::error_of([&] { serving::check_memory(plan, 1000); }),
              HasSubstr("the weights alone need"));
}

}  // namespace
}  // namespace seqfuse::faults_test
