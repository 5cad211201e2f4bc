// Small models and batches for the tests of models and of training.
#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/random.h"
#include "config/roots.h"
#include "data/batch/batch.h"
#include "models/hstu/ranking_model.h"
#include "models/hstu/retrieval_model.h"
#include "tests/unit/memory_dataset.h"

namespace seqfuse::models::hstu {

// Float64 rounding stays far below this, and the effect of an input is far above: a result that
// differs by more depends on the input, whatever instructions the CPU has.
inline constexpr double kMoreThanRounding = 1e-8;

inline double largest_difference(const torch::Tensor& a, const torch::Tensor& b) {
  return (a - b).abs().max().item<double>();
}

// 2 layers, 2 heads, no dropout; windows of at most 12 events.
inline config::Config small_config(const std::string& architecture) {
  config::Config config;
  config.dataset.dataset_name = "memory";
  config.dataset.max_history_seqlen = 12;
  config.dataset.split = config::SplitKind::leave_one_out;
  config.network.num_layers = 2;
  config.network.hidden_size = 8;
  config.network.num_attention_heads = 2;
  config.network.kv_channels = 6;
  config.network.hidden_dropout = 0;
  config.network.norm_epsilon = 1e-6;
  config.network.architecture = config::find_choice<config::Architecture>(architecture).value();
  config.network.num_position_buckets = 64;
  config.retrieval.negatives = config::Negatives::uniform;
  config.retrieval.num_negatives = 5;
  config.ranking.prediction_head_arch = {6, 3};
  config.ranking.num_tasks = 3;
  config.optimizer.learning_rate = 1e-2;
  config.optimizer.weight_decay = 0;
  return config;
}

// 20 items, actions of 3 bits, one context feature of 5 values.
inline data::Manifest small_manifest() {
  data::Manifest manifest;
  manifest.dataset_name = "memory";
  manifest.num_items = 20;
  manifest.has_timestamps = true;
  manifest.action_kind = data::ActionKind::bits;
  manifest.num_actions = 8;
  manifest.action_names = {"click", "like", "share"};
  manifest.context = {{"user_id", 5}};
  manifest.hash = "xxh3:0";
  return manifest;
}

// Windows of these lengths with pseudo-random events; the last `candidates` of each are candidates.
inline data::Batch random_batch(const std::vector<int64_t>& lengths, int64_t candidates = 0,
                                uint64_t seed = 1) {
  Random random(seed);
  data::Batch batch;
  batch.offsets = {0};
  batch.context.resize(1);
  for (const int64_t length : lengths) {
    batch.users.push_back(batch.batch_size());
    batch.context[0].push_back(1 + static_cast<int64_t>(random.below(4)));
    batch.num_candidates.push_back(std::min(candidates, length));
    int64_t time = 1'000'000;
    for (int64_t i = 0; i < length; ++i) {
      time += static_cast<int64_t>(random.below(5000));
      batch.items.push_back(1 + static_cast<int64_t>(random.below(20)));
      batch.actions.push_back(static_cast<int64_t>(random.below(8)));
      batch.timestamps.push_back(time);
    }
    batch.offsets.push_back(batch.offsets.back() + length);
  }
  return batch;
}

// Sets every parameter to random numbers of ordinary size, so that no term of the formulae
// vanishes.
inline void randomize(torch::nn::Module& module) {
  const torch::NoGradGuard no_grad;
  torch::manual_seed(7);
  for (auto& parameter : module.parameters()) parameter.normal_(0, 0.5);
}

}  // namespace seqfuse::models::hstu
