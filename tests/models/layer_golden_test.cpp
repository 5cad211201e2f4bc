// The hstu layer against golden vectors in double, made by tests/golden/make_hstu_golden.py.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "base/file.h"
#include "models/hstu/layer.h"
#include "tests/paths.h"

namespace seqfuse::models::hstu::layer_golden_test {
namespace {

using nlohmann::json;

torch::Tensor tensor_of(const json& values) {
  if (!values[0].is_array())
    return torch::tensor(values.get<std::vector<double>>(), torch::kDouble);
  std::vector<torch::Tensor> rows;
  for (const json& row : values) rows.push_back(tensor_of(row));
  return torch::stack(rows);
}

void expect_close(const torch::Tensor& actual, const json& expected, const std::string& name) {
  const torch::Tensor wanted = tensor_of(expected);
  ASSERT_EQ(actual.sizes(), wanted.sizes()) << name;
  EXPECT_LT((actual - wanted).abs().max().item<double>(), 1e-12) << name;
}

TEST(LayerGolden, ForwardAndAllGradients) {
  const json golden =
      json::parse(read_file(test::source_directory() + "/tests/golden/hstu_layer.json"));
  ModelSpec spec;
  spec.network.architecture = config::Architecture::hstu;
  spec.network.hidden_size = golden["hidden_size"];
  spec.network.num_attention_heads = golden["num_heads"];
  spec.network.kv_channels = golden["head_dim"];
  spec.network.norm_epsilon = golden["norm_epsilon"];
  spec.scaling_seqlen = golden["scaling_seqlen"];
  Initializer init(1, torch::kDouble);
  HstuLayer layer(LayerOptions::of(spec), init);
  layer.eval();
  {
    const torch::NoGradGuard no_grad;
    for (auto& parameter : layer.named_parameters()) {
      ASSERT_TRUE(golden["inputs"].contains(parameter.key())) << parameter.key();
      parameter.value().copy_(tensor_of(golden["inputs"][parameter.key()]));
    }
  }
  const torch::Tensor x = tensor_of(golden["inputs"]["x"]).requires_grad_();
  Sequences sequences;
  sequences.offsets = torch::tensor({int64_t{0}, x.size(0)});
  sequences.num_contexts = torch::tensor({golden["num_contexts"].get<int64_t>()});
  sequences.num_targets = torch::tensor({golden["num_targets"].get<int64_t>()});

  const torch::Tensor out = layer.forward(x, sequences, 0);
  expect_close(out.detach(), golden["out"], "out");
  out.backward(tensor_of(golden["grad_out"]));
  expect_close(x.grad(), golden["gradients"]["x"], "x");
  ASSERT_EQ(layer.named_parameters().size(), golden["gradients"].size() - 1);
  for (const auto& parameter : layer.named_parameters()) {
    expect_close(parameter.value().grad(), golden["gradients"][parameter.key()], parameter.key());
  }
}

TEST(Layer, DropoutFollowsItsSeedAndEndsWithTraining) {
  ModelSpec spec;
  spec.network.hidden_size = 8;
  spec.network.num_attention_heads = 2;
  spec.network.kv_channels = 4;
  spec.network.hidden_dropout = 0.5;
  spec.scaling_seqlen = 16;
  Initializer init(1, torch::kFloat);
  HstuLayer layer(LayerOptions::of(spec), init);
  const torch::Tensor x = torch::randn({9, 8});
  Sequences sequences;
  sequences.offsets = torch::tensor({int64_t{0}, int64_t{9}});
  EXPECT_TRUE(layer.forward(x, sequences, 3).equal(layer.forward(x, sequences, 3)));
  EXPECT_FALSE(layer.forward(x, sequences, 3).equal(layer.forward(x, sequences, 4)));
  layer.eval();
  EXPECT_TRUE(layer.forward(x, sequences, 3).equal(layer.forward(x, sequences, 4)));
}

}  // namespace
}  // namespace seqfuse::models::hstu::layer_golden_test
