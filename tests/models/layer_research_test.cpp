// The hstu_research model against a padded computation in plain torch, in double.
#include <gtest/gtest.h>
#include <torch/nn/functional.h>
#include <torch/nn/module.h>
#include <torch/types.h>

#include <cmath>
#include <map>
#include <string>

#include "tests/models/model_fixtures.h"

namespace seqfuse::models::hstu::layer_research_test {
namespace {

namespace F = torch::nn::functional;

using Weights = std::map<std::string, torch::Tensor>;

Weights weights_of(const torch::nn::Module& module) {
  Weights weights;
  for (const auto& parameter : module.named_parameters())
    weights[parameter.key()] = parameter.value();
  return weights;
}

torch::Tensor plain_norm(const torch::Tensor& x) {
  return F::layer_norm(x, F::LayerNormFuncOptions({x.size(-1)}).eps(1e-6));
}

// ids, times [B, n] padded with 0; next [B, n]: the time of the event after each. -> states [B, n,
// D].
torch::Tensor padded_states(const Weights& w, const ModelSpec& spec, const torch::Tensor& ids,
                            const torch::Tensor& times, const torch::Tensor& next) {
  const int64_t windows = ids.size(0), n = ids.size(1), heads = spec.network.num_attention_heads,
                head_dim = spec.network.kv_channels, bound = spec.scaling_seqlen;
  const torch::Tensor valid = (ids > 0).unsqueeze(-1).to(torch::kDouble);
  torch::Tensor x =
      F::embedding(ids, w.at("tables.item")) * std::sqrt(spec.network.hidden_size * 1.0) +
      w.at("encoder.position").slice(0, 0, n);
  x = x * valid;
  const torch::Tensor seconds = (next.unsqueeze(2) - times.unsqueeze(1)).abs().clamp_min(1);
  const torch::Tensor bucket = (seconds.to(torch::kDouble).log() / 0.301)
                                   .floor()
                                   .to(torch::kLong)
                                   .clamp(0, spec.network.num_time_buckets);
  const torch::Tensor position = torch::arange(n);
  const torch::Tensor distance = bound - 1 + position.unsqueeze(0) - position.unsqueeze(1);
  const torch::Tensor mask = torch::ones({n, n}, torch::kDouble).tril();
  for (int64_t i = 0; i < spec.network.num_layers; ++i) {
    const std::string layer = "encoder.layers." + std::to_string(i) + ".";
    const torch::Tensor uvqk = torch::silu(plain_norm(x).matmul(w.at(layer + "uvqk_weight")));
    const auto parts = uvqk.split(heads * head_dim, -1);
    const auto by_head = [&](const torch::Tensor& part) {
      return part.view({windows, n, heads, head_dim}).transpose(1, 2);
    };
    const torch::Tensor bias = (w.at(layer + "position_bias").index({distance}) +
                                w.at(layer + "time_bias").index({bucket}))
                                   .unsqueeze(1);
    const torch::Tensor logits =
        by_head(parts[2]).matmul(by_head(parts[3]).transpose(-1, -2)) + bias;
    const torch::Tensor o = (torch::silu(logits) / static_cast<double>(bound) * mask)
                                .matmul(by_head(parts[1]))
                                .transpose(1, 2)
                                .reshape({windows, n, heads * head_dim});
    x = (parts[0] * plain_norm(o)).matmul(w.at(layer + "output_weight")) +
        w.at(layer + "output_bias") + x;
    x = x * valid;
  }
  return F::normalize(x, F::NormalizeFuncOptions().dim(-1).eps(1e-6));
}

struct Padded {
  torch::Tensor ids, times, next, targets;  // [B, n]
};

Padded pad_training(const data::Batch& batch, int64_t n) {
  Padded padded;
  for (torch::Tensor* tensor : {&padded.ids, &padded.times, &padded.next, &padded.targets}) {
    *tensor = torch::zeros({batch.batch_size(), n}, torch::kLong);
  }
  for (int64_t b = 0; b < batch.batch_size(); ++b) {
    const int64_t begin = batch.offsets[b];
    for (int64_t i = 0; begin + i + 1 < batch.offsets[b + 1]; ++i) {
      padded.ids[b][i] = batch.items[begin + i];
      padded.times[b][i] = batch.timestamps[begin + i];
      padded.next[b][i] = batch.timestamps[begin + i + 1];
      padded.targets[b][i] = batch.items[begin + i + 1];
    }
  }
  return padded;
}

TEST(LayerResearch, LossAndGradientsEqualPaddedTorch) {
  const ModelSpec spec =
      ModelSpec::make(Task::retrieval, small_config("hstu_research"), small_manifest());
  EXPECT_EQ(spec.scaling_seqlen, 12 + 11);
  const auto model = make_retrieval_model(spec, 1, torch::kDouble);
  randomize(*model);
  const data::Batch batch = random_batch({13, 1, 5, 0, 2, 9});
  const Padded padded = pad_training(batch, 12);
  const torch::Tensor in_use = padded.targets > 0;
  const int64_t positions = in_use.sum().item<int64_t>();
  ASSERT_EQ(positions, 12 + 4 + 1 + 8);
  const torch::Tensor negatives = torch::randint(1, 21, {positions, 5}, torch::kInt);

  const torch::Tensor losses = model->losses(batch, {}, negatives);
  losses.mean().backward();
  Weights gradients;
  for (const auto& parameter : model->named_parameters()) {
    gradients[parameter.key()] = parameter.value().grad().clone();
    parameter.value().mutable_grad().reset();
  }

  const Weights w = weights_of(*model);
  const torch::Tensor hidden =
      padded_states(w, spec, padded.ids, padded.times, padded.next).index({in_use});
  const torch::Tensor rows =
      F::normalize(w.at("tables.item"), F::NormalizeFuncOptions().dim(-1).eps(1e-6));
  const torch::Tensor targets = padded.targets.index({in_use});
  const torch::Tensor positive = (hidden * rows.index({targets})).sum(-1, true) / 0.05;
  torch::Tensor negative =
      torch::einsum("pd,pkd->pk", {hidden, rows.index({negatives.to(torch::kLong)})}) / 0.05;
  negative = negative.masked_fill(negatives == targets.unsqueeze(1), -5e4);
  const torch::Tensor expected = -torch::cat({positive, negative}, 1).log_softmax(1).select(1, 0);
  EXPECT_LT((losses - expected).abs().max().item<double>(), 1e-10);
  expected.mean().backward();
  for (const auto& [name, weight] : w) {
    EXPECT_LT((weight.grad() - gradients.at(name)).abs().max().item<double>(), 1e-10) << name;
  }
}

TEST(LayerResearch, QueryIsTheStateThatPredictsTheHeldOutItem) {
  const ModelSpec spec =
      ModelSpec::make(Task::retrieval, small_config("hstu_research"), small_manifest());
  const auto model = make_retrieval_model(spec, 1, torch::kDouble);
  randomize(*model);
  model->eval();
  const torch::NoGradGuard no_grad;
  const data::Batch batch = random_batch({8, 3}, 1);
  const Padded padded = pad_training(batch, 12);
  const torch::Tensor states =
      padded_states(weights_of(*model), spec, padded.ids, padded.times, padded.next);
  const torch::Tensor query = model->query(batch);
  EXPECT_LT((query[0] - states[0][6]).abs().max().item<double>(), 1e-12);
  EXPECT_LT((query[1] - states[1][1]).abs().max().item<double>(), 1e-12);
}

}  // namespace
}  // namespace seqfuse::models::hstu::layer_research_test
