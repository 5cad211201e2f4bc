// The description of an HSTU model: everything that determines its shapes and its maths.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "config/roots.h"
#include "data/dataset/dataset.h"

namespace seqfuse::models::hstu {

using config::Task;

// Stored in the checkpoint, from which the model is rebuilt.
struct ModelSpec {
  Task task = Task::retrieval;
  config::NetworkArgs network;
  config::RankingArgs ranking;
  config::RetrievalArgs retrieval;
  int64_t max_history = 0, max_candidates = 0;
  int64_t scaling_seqlen = 0;  // S, resolved
  int64_t num_items = 0;       // item ids are 1..num_items; tables have num_items + 1 rows
  int64_t num_actions = 0;     // 0: no actions
  std::vector<data::ContextFeature> context;
  std::string dataset_hash;  // of the vocabularies

  // Which inputs the model reads besides items.
  bool reads_times() const;
  bool reads_actions() const;
  bool reads_context() const;

  // Throws UsageError if config and dataset disagree (e.g. more classes in the data than in the
  // head).
  static ModelSpec make(Task task, const config::Config& config, const data::Manifest& manifest);
};

// The dtype of activations: on the CPU that of the weights; on a GPU NetworkArgs.dtype_str, while
// weights, tables and losses stay float32.
torch::ScalarType compute_dtype(const ModelSpec& spec, const torch::Tensor& weights);

}  // namespace seqfuse::models::hstu
