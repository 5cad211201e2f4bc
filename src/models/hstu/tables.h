// The embedding tables of a model. Their names in a model and in checkpoints begin with "tables.".
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <vector>

#include "models/hstu/init.h"
#include "models/hstu/model.h"

namespace seqfuse::models {

// Tables of this many rows and more have sparse gradients: only the rows of a step's ids are
// computed, and updated. Smaller ones have dense gradients, so that optimisers act exactly as
// published.
constexpr int64_t kSparseTableRows = 262'144;

// Rows of ids int64 [n] as [n, D], with the gradient that fits the table's size.
at::Tensor lookup(const at::Tensor& table, const at::Tensor& ids);

class Tables : public torch::nn::Module {
 public:
  Tables(const ModelSpec& spec, Initializer& init);

  at::Tensor item;    // [num_items + 1, item width]
  at::Tensor action;  // [num_actions, item width]; undefined where actions are not read
  std::vector<at::Tensor> context;  // a feature each: [vocab_size, context width]
};

}  // namespace seqfuse::models
