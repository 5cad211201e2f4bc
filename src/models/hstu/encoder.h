// Encodes windows of events to states of their item tokens: embeddings, positions, HSTU layers.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/types.h>

#include <memory>
#include <vector>

#include "models/common/init.h"
#include "models/common/step_seed.h"
#include "models/hstu/layer.h"
#include "models/hstu/model_spec.h"
#include "models/hstu/tables.h"
#include "models/hstu/windows.h"

namespace seqfuse::models::hstu {

// States after item tokens [n, D], not normalised, in the order of Windows::items.
struct States {
  at::Tensor history;     // [H, D]
  at::Tensor candidates;  // [C, D]
};

class Encoder : public torch::nn::Module {
 public:
  // The encoder for spec's architecture. The model owns the tables.
  static std::shared_ptr<Encoder> make(const ModelSpec& spec, std::shared_ptr<Tables> tables,
                                       Initializer& init);

  // Dropout in training mode only. The states' dtype is compute_dtype().
  States forward(const Windows& windows, const StepSeed& seed);

 protected:
  Encoder(const ModelSpec& spec, std::shared_ptr<Tables> tables);
  void add_layers(Initializer& init);  // call after adding the subclass's own parameters

  // sqrt(D) x + the row of table for each token's position, in compute_dtype().
  at::Tensor add_positions(const at::Tensor& x, const at::Tensor& table, const at::Tensor& offsets,
                           const ops::OptionalTensor& num_targets) const;

  // Tokens x [T, D] of all windows, each window's in order, and the rows of their parts.
  struct Tokens {
    at::Tensor x;
    Sequences sequences;
    // Context, history, candidates, as far as used: offsets [B + 1] and rows.
    std::vector<at::Tensor> part_offsets;
    std::vector<int64_t> part_rows;
  };
  virtual Tokens embed(const Windows& windows) = 0;
  virtual States pick(const at::Tensor& x, const Tokens& tokens, const Windows& windows) = 0;

  ModelSpec spec_;
  std::shared_ptr<Tables> tables_;

 private:
  torch::nn::ModuleList layers_;
};

}  // namespace seqfuse::models::hstu
