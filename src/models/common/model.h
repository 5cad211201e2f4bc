// The base of models that train: embedding tables and a device. BERT and GPT-NeoX only run; they do
// not use it.
#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include "embeddings/table.h"

namespace seqfuse::models {

// With several processes, all must make the same number of calls that take a batch (or
// embeddings::fetch_nothing instead), since these exchange rows of sharded tables.
class Model : public torch::nn::Module {
 public:
  // In the order in which a batch fetches rows. Their weights are parameters "tables.NAME".
  virtual embeddings::Tables tables() const = 0;

  // The device of the first parameter; a model is on one device.
  at::Device device() const;
};

}  // namespace seqfuse::models
