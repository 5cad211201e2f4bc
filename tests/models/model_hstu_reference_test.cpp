// The hstu model, from events to losses and all gradients, against plain torch: dense matrices per
// window with an explicit mask, in double.
#include <gtest/gtest.h>
#include <torch/nn/functional.h>
#include <torch/nn/module.h>
#include <torch/types.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "tests/models/model_fixtures.h"

namespace seqfuse::models::hstu::model_hstu_reference_test {
namespace {

namespace F = torch::nn::functional;
using torch::Tensor;

struct WindowStates {
  Tensor history;     // [events, D]: at each event's item
  Tensor candidates;  // [candidates, D]
};

class Reference {
 public:
  Reference(const torch::nn::Module& module, const ModelSpec& spec) : spec_(spec) {
    for (const auto& parameter : module.named_parameters()) w_[parameter.key()] = parameter.value();
  }

  const std::map<std::string, Tensor>& weights() const { return w_; }

  // Window b of the batch: history events [begin, cut), candidates [cut, end).
  WindowStates states(const data::Batch& batch, int64_t b, int64_t cut, int64_t end,
                      bool context_sees_history) const {
    const int64_t begin = batch.offsets[b], events = cut - begin, targets = end - cut;
    std::vector<Tensor> tokens;
    for (size_t feature = 0; feature < spec_.context.size(); ++feature) {
      const Tensor row = w_.at("tables." + spec_.context[feature].name)[batch.context[feature][b]];
      tokens.push_back(mlp("encoder.context_mlp", row));
    }
    const auto contexts = std::ssize(tokens);
    for (int64_t i = begin; i < cut; ++i) {
      tokens.push_back(mlp("encoder.item_mlp", w_.at("tables.item")[batch.items[i]]));
      tokens.push_back(mlp("encoder.item_mlp", w_.at("tables.action")[batch.actions[i]]));
    }
    for (int64_t i = cut; i < end; ++i) {
      tokens.push_back(mlp("encoder.item_mlp", w_.at("tables.item")[batch.items[i]]));
    }
    const auto n = std::ssize(tokens);
    if (n == 0) return {};
    Tensor x = torch::stack(tokens) * std::sqrt(static_cast<double>(spec_.network.hidden_size));
    std::vector<int64_t> positions;
    Tensor mask = torch::zeros({n, n}, torch::kDouble);
    for (int64_t i = 0; i < n; ++i) {
      positions.push_back(std::min({i, n - targets, spec_.network.num_position_buckets - 1}));
      for (int64_t j = 0; j < n; ++j) {
        mask[i][j] = sees(i, j, contexts, n - targets, context_sees_history) ? 1 : 0;
      }
    }
    x = x + w_.at("encoder.position").index({torch::tensor(positions)});
    for (int64_t layer = 0; layer < spec_.network.num_layers; ++layer)
      x = run_layer(layer, x, mask);
    return {x.slice(0, contexts, contexts + 2 * events, 2), x.slice(0, n - targets, n)};
  }

  // Applies the layers of a Sequential of Linear and ReLU; the identity if there is none.
  Tensor mlp(const std::string& name, Tensor x) const {
    for (int64_t i = 0;; i += 2) {
      const std::string linear = name + "." + std::to_string(i);
      const auto weight = w_.find(linear + ".weight");
      if (weight == w_.end()) return x;
      if (i > 0) x = torch::relu(x);
      x = x.matmul(weight->second.t()) + w_.at(linear + ".bias");
    }
  }

 private:
  bool sees(int64_t i, int64_t j, int64_t contexts, int64_t history_end,
            bool context_sees_history) const {
    if (!context_sees_history) contexts = 0;  // then they are tokens like the others
    if (i < contexts) return j < history_end;
    if (j > i) return false;
    const int64_t reach = spec_.network.max_attn_len;
    const int64_t full = spec_.network.min_full_attn_seq_len;
    const bool local = reach > 0 && (full == 0 || i < history_end - full);
    if (local && j < i - reach) {
      // All contexts are one position, just before the first event.
      if (j >= contexts || contexts <= i - reach) return false;
    }
    const int64_t group = spec_.network.target_group_size;
    return j < history_end || (i - history_end) / group == (j - history_end) / group;
  }

  Tensor norm(const Tensor& x, const std::string& name) const {
    return F::layer_norm(x, F::LayerNormFuncOptions({x.size(-1)})
                                .weight(w_.at(name + "_weight"))
                                .bias(w_.at(name + "_bias"))
                                .eps(spec_.network.norm_epsilon));
  }

  Tensor run_layer(int64_t index, const Tensor& x, const Tensor& mask) const {
    const std::string layer = "encoder.layers." + std::to_string(index) + ".";
    const int64_t n = x.size(0), heads = spec_.network.num_attention_heads,
                  head_dim = spec_.network.kv_channels;
    const Tensor uvqk =
        torch::silu(norm(x, layer + "input_norm").matmul(w_.at(layer + "uvqk_weight")) +
                    w_.at(layer + "uvqk_bias"));
    const auto parts = uvqk.split(heads * head_dim, -1);
    const auto by_head = [&](const Tensor& part) {
      return part.view({n, heads, head_dim}).transpose(0, 1);
    };
    const Tensor scores = by_head(parts[2]).matmul(by_head(parts[3]).transpose(-1, -2)) /
                          std::sqrt(static_cast<double>(head_dim));
    const Tensor o = (torch::silu(scores) / static_cast<double>(spec_.scaling_seqlen) * mask)
                         .matmul(by_head(parts[1]))
                         .transpose(0, 1)
                         .reshape({n, heads * head_dim});
    return x + (parts[0] * norm(o, layer + "output_norm")).matmul(w_.at(layer + "output_weight"));
  }

  ModelSpec spec_;
  std::map<std::string, Tensor> w_;
};

std::map<std::string, Tensor> take_gradients(torch::nn::Module& module) {
  std::map<std::string, Tensor> gradients;
  for (auto& parameter : module.named_parameters()) {
    gradients[parameter.key()] = parameter.value().grad().clone();
    parameter.value().mutable_grad().reset();
  }
  return gradients;
}

void expect_same(const Tensor& losses, const Tensor& expected, torch::nn::Module& module) {
  ASSERT_EQ(losses.sizes(), expected.sizes());
  EXPECT_LT((losses - expected).abs().max().item<double>(), 1e-10);
  losses.mean().backward();
  const auto gradients = take_gradients(module);
  expected.mean().backward();
  for (const auto& [name, gradient] : take_gradients(module)) {
    EXPECT_GT(gradient.abs().max().item<double>(), 0) << name;
    EXPECT_LT((gradient - gradients.at(name)).abs().max().item<double>(), 1e-10) << name;
  }
}

Tensor normalized(const Tensor& x) {
  return F::normalize(x, F::NormalizeFuncOptions().dim(-1).eps(1e-6));
}

config::Config config_of(bool narrow_rows) {
  config::Config config = small_config("hstu");
  if (narrow_rows) {
    config.network.item_embedding_dim = 5;
    config.network.contextual_embedding_dim = 3;
  }
  return config;
}

struct CandidateCase {
  bool narrow_rows = false;
  int64_t group = 1, max_attn_len = 0, min_full_attn_seq_len = 0;
};

TEST(ModelHstuReference, RankingOfCandidates) {
  for (const CandidateCase& c : {CandidateCase{},
                                 {.narrow_rows = true},
                                 {.group = 2},
                                 {.max_attn_len = 5},
                                 {.group = 2, .max_attn_len = 5, .min_full_attn_seq_len = 3}}) {
    config::Config config = config_of(c.narrow_rows);
    config.dataset.max_num_candidates = 3;
    config.network.target_group_size = c.group;
    config.network.max_attn_len = c.max_attn_len;
    config.network.min_full_attn_seq_len = c.min_full_attn_seq_len;
    const ModelSpec spec = ModelSpec::make(Task::ranking, config, small_manifest());
    EXPECT_EQ(spec.scaling_seqlen, 1 + 2 * (12 + 3));
    const auto model = make_ranking_model(spec, 1, torch::kDouble);
    randomize(*model);
    const data::Batch batch = random_batch({13, 4, 3, 8}, 3);
    const Reference reference(*model, spec);
    std::vector<Tensor> read;
    std::vector<double> labels;
    for (int64_t b = 0; b < batch.batch_size(); ++b) {
      const int64_t end = batch.offsets[b + 1], cut = end - batch.num_candidates[b];
      read.push_back(
          reference.states(batch, b, cut, end, /*context_sees_history=*/true).candidates);
      for (int64_t i = cut; i < end; ++i) {
        for (int bit = 0; bit < 3; ++bit) labels.push_back((batch.actions[i] >> bit) & 1);
      }
    }
    const Tensor logits = reference.mlp("head", normalized(torch::cat(read)));
    const Tensor expected = at::binary_cross_entropy_with_logits(
        logits, torch::tensor(labels, torch::kDouble).view({-1, 3}), {}, {}, at::Reduction::None);
    expect_same(model->losses(model->forward(batch, {})), expected, *model);
  }
}

TEST(ModelHstuReference, RankingOfEveryEvent) {
  config::Config config = config_of(true);
  config.network.max_attn_len = 7;
  config.network.min_full_attn_seq_len = 4;
  const ModelSpec spec = ModelSpec::make(Task::ranking, config, small_manifest());
  const auto model = make_ranking_model(spec, 1, torch::kDouble);
  randomize(*model);
  const data::Batch batch = random_batch({12, 1, 5});
  const Reference reference(*model, spec);
  std::vector<Tensor> read;
  std::vector<double> labels;
  for (int64_t b = 0; b < batch.batch_size(); ++b) {
    const int64_t end = batch.offsets[b + 1];
    read.push_back(reference.states(batch, b, end, end, false).history);
    for (int64_t i = batch.offsets[b]; i < end; ++i) {
      for (int bit = 0; bit < 3; ++bit) labels.push_back((batch.actions[i] >> bit) & 1);
    }
  }
  const Tensor expected = at::binary_cross_entropy_with_logits(
      reference.mlp("head", normalized(torch::cat(read))),
      torch::tensor(labels, torch::kDouble).view({-1, 3}), {}, {}, at::Reduction::None);
  expect_same(model->losses(model->forward(batch, {})), expected, *model);
}

TEST(ModelHstuReference, RetrievalOfTheNextItem) {
  const ModelSpec spec = ModelSpec::make(Task::retrieval, config_of(false), small_manifest());
  const auto model = make_retrieval_model(spec, 1, torch::kDouble);
  randomize(*model);
  const data::Batch batch = random_batch({13, 2, 6});
  const Reference reference(*model, spec);
  std::vector<Tensor> read;
  std::vector<int64_t> targets;
  for (int64_t b = 0; b < batch.batch_size(); ++b) {
    const int64_t end = batch.offsets[b + 1], cut = end - 1;
    read.push_back(reference.states(batch, b, cut, cut, false).history);
    for (int64_t i = batch.offsets[b] + 1; i < end; ++i) targets.push_back(batch.items[i]);
  }
  const auto positions = std::ssize(targets);
  const Tensor target = torch::tensor(targets),
               negatives = torch::randint(1, 21, {positions, 5}, torch::kInt);
  const Tensor hidden = normalized(torch::cat(read));
  const Tensor rows = normalized(reference.weights().at("tables.item"));
  const Tensor positive = (hidden * rows.index({target})).sum(-1, true) / 0.05;
  const Tensor negative =
      (torch::einsum("pd,pkd->pk", {hidden, rows.index({negatives.to(torch::kLong)})}) / 0.05)
          .masked_fill(negatives == target.unsqueeze(1), -5e4);
  const Tensor expected = -torch::cat({positive, negative}, 1).log_softmax(1).select(1, 0);
  expect_same(model->losses(batch, {}, negatives), expected, *model);
}

}  // namespace
}  // namespace seqfuse::models::hstu::model_hstu_reference_test
