// What of a batch a model reads: the history of each window, and its candidates.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <vector>

#include "data/batch.h"
#include "models/hstu/model.h"

namespace seqfuse::models {

enum class Reading {
  next_item,   // retrieval training: all events but each window's last; each predicts its successor
  query,       // retrieval inference: all events but the candidates
  candidates,  // ranking: all events, the candidates set apart
};

// B windows, with H events of history and C candidates in all. Tensors are int64.
struct Windows {
  at::Tensor history_offsets, candidate_offsets;  // [B + 1]
  at::Tensor items;          // [H + C]: the histories one after the other, then the candidates
  at::Tensor actions;        // [H], of the history; undefined without actions
  at::Tensor timestamps;     // [H]; undefined without timestamps
  at::Tensor request_times;  // [B]: when the first event after the history came (or its last)
  std::vector<at::Tensor> context;  // a feature each: [B]

  int64_t batch_size() const { return history_offsets.size(0) - 1; }
  int64_t num_history() const { return items.size(0) - num_candidates(); }
  int64_t num_candidates() const;
};

Windows make_windows(const data::Batch& batch, Reading reading);

// int64 values as a tensor of their own.
at::Tensor to_tensor(const std::vector<int64_t>& values);

}  // namespace seqfuse::models
