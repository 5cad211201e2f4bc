// What all models have: embedding tables and a device.
#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include "embeddings/table.h"

namespace seqfuse::models {

// With several processes, each must make the same number of calls that take a batch (or
// embeddings::fetch_nothing instead), since rows of sharded tables are exchanged in them.
class Model : public torch::nn::Module {
 public:
  // In the order in which a batch fetches rows. Their weights are parameters "tables.NAME".
  virtual embeddings::Tables tables() const = 0;

  // Of the first parameter; a model is on one device.
  at::Device device() const;
};

}  // namespace seqfuse::models
