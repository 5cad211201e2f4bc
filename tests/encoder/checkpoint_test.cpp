// Accepted and refused contents of config.json and model.safetensors.
#include <gtest/gtest.h>

#include <limits>

#include "tests/encoder/tiny_bert.h"
#include "tests/temporary_directory.h"

namespace seqfuse::bert_checkpoint_test {
namespace {

using models::TensorMap;
using test::TinyBert;

std::string refused_tensors(const TensorMap& tensors, at::ScalarType dtype = at::kFloat) {
  try {
    models::bert::make_weights(TinyBert().model_config(), tensors, dtype, at::kCPU, "FILE");
  } catch (const DataError& error) {
    return error.what();
  }
  return "nothing";
}

std::string refused_config(const std::function<void(nlohmann::json&)>& change) {
  const TemporaryDirectory folder;
  nlohmann::json config = TinyBert().config();
  change(config);
  std::ofstream(folder.path() / "config.json") << config;
  try {
    models::bert::load_config(folder.path());
  } catch (const DataError& error) {
    const std::string message = error.what(), file = (folder.path() / "config.json: ").string();
    return message.starts_with(file) ? message.substr(file.size()) : message;
  }
  return "nothing";
}

bool equal_weights(const models::bert::Weights& a, const models::bert::Weights& b) {
  return at::equal(a.words, b.words) && at::equal(a.norm_bias, b.norm_bias) &&
         at::equal(a.layers[1].gemm0, b.layers[1].gemm0) &&
         at::equal(a.layers[1].norm2_weight, b.layers[1].norm2_weight);
}

TEST(BertConfig, IsReadFromAFile) {
  const TemporaryDirectory folder;
  TinyBert tiny;
  tiny.hidden_act = "gelu_new";
  tiny.write(folder.path());
  const auto config = models::bert::load_config(folder.path());
  EXPECT_EQ(config.num_heads, tiny.heads);
  EXPECT_EQ(config.max_position_embeddings, tiny.positions);
  EXPECT_EQ(config.activation, models::bert::Activation::gelu_tanh);
  EXPECT_EQ(config.layer_norm_eps, tiny.eps);
  const auto model = models::bert::Model::load(folder.path(), at::kFloat, at::kCPU);
  EXPECT_EQ(models::bert::stored_dtype(folder.path()), at::kFloat);
  EXPECT_EQ(model.dtype(), at::kFloat);
}

TEST(BertConfig, NamesUnsupportedSettings) {
  const auto set = [](const char* key, const nlohmann::json& value) {
    return refused_config([&](nlohmann::json& config) { config[key] = value; });
  };
  EXPECT_EQ(set("model_type", "roberta"), "model_type is 'roberta'; only bert (BERT) is supported");
  EXPECT_EQ(set("position_embedding_type", "relative_key"),
            "position_embedding_type is 'relative_key'; only absolute is supported");
  EXPECT_EQ(set("hidden_act", "gelo"),
            "hidden_act is 'gelo' (did you mean 'gelu'?); supported are gelu, gelu_new, relu");
  EXPECT_EQ(set("is_decoder", true), "is_decoder is true; only encoders are supported");
  EXPECT_EQ(set("num_attention_heads", 3),
            "hidden_size 16 is not a multiple of num_attention_heads 3");
  EXPECT_EQ(set("layer_norm_eps", 0), "layer_norm_eps is 0; expected a number above 0");
  EXPECT_EQ(refused_config([](nlohmann::json& config) { config.erase("vocab_size"); }),
            "vocab_size is missing");
}

TEST(BertWeights, NamesMayHaveAPrefixAndHeadsAreIgnored) {
  const TinyBert tiny;
  const auto config = tiny.model_config();
  const TensorMap plain = tiny.tensors();
  TensorMap other{{"cls.predictions.bias", at::zeros({3})},
                  {"classifier.weight", at::zeros({2, 16})},
                  {"bert.pooler.dense.weight", at::zeros({16, 16})},
                  {"bert.embeddings.position_ids", at::arange(9).unsqueeze(0)}};
  for (const auto& [name, tensor] : plain) {
    std::string old = name;
    const size_t norm = old.find("LayerNorm.");
    if (norm != std::string::npos) {
      old = old.substr(0, norm) + (old.ends_with("weight") ? "LayerNorm.gamma" : "LayerNorm.beta");
    }
    other["bert." + old] = tensor;
  }
  const auto make = [&](const TensorMap& tensors) {
    return models::bert::make_weights(config, tensors, at::kFloat, at::kCPU, "FILE");
  };
  EXPECT_TRUE(equal_weights(make(plain), make(other)));
}

TEST(BertWeights, NamesWrongTensors) {
  const TensorMap good = TinyBert().tensors();
  const std::string name = "encoder.layer.1.output.dense.weight";
  TensorMap changed = good;
  changed.erase(name);
  EXPECT_EQ(refused_tensors(changed).find("FILE: the tensor " + name + " is missing"), 0);
  changed = good;
  changed[name] = at::zeros({16, 3});
  EXPECT_EQ(refused_tensors(changed),
            "FILE: " + name + " is [16, 3]; config.json makes it [16, 24]");
  changed = good;
  changed[name] = changed[name].clone();
  changed[name][3][4] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(refused_tensors(changed), "FILE: " + name + " has values that are NaN or infinite");
  changed[name][3][4] = 1e39;
  EXPECT_EQ(refused_tensors(changed),
            "FILE: " + name + " has values beyond the range of Float; choose another dtype");
  changed = good;
  changed[name] = at::zeros({16, 24}, at::kLong);
  EXPECT_EQ(refused_tensors(changed),
            "FILE: " + name + " is Long; expected float32, float16 or bfloat16");
  changed = good;
  changed["encoder.layer.2.output.dense.weight"] = at::zeros({16, 24});
  EXPECT_EQ(refused_tensors(changed),
            "FILE: 1 tensors are not of a BERT as config.json describes it, the first is "
            "encoder.layer.2.output.dense.weight");
}

}  // namespace
}  // namespace seqfuse::bert_checkpoint_test
