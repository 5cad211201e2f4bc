// The parts of a batch that a model reads: each window's history and candidates.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

#include "data/batch/batch.h"
#include "models/hstu/model_spec.h"
#include "models/hstu/step_inputs.h"

namespace seqfuse::models::hstu {

enum class Reading {
  next_item,   // retrieval training: all events but each window's last; each predicts its successor
  query,       // retrieval inference: all events but the candidates
  candidates,  // ranking: all events, with the candidates separate
};

// B windows with H events of history and C candidates in total. Tensors are int64, on the model's
// device.
struct Windows {
  at::Tensor history_offsets, candidate_offsets;  // [B + 1]
  at::Tensor items;          // [H + C]: all histories in order, then all candidates
  at::Tensor actions;        // [H], of the history; undefined if events have none
  at::Tensor timestamps;     // [H]; undefined if events have none
  at::Tensor request_times;  // [B]: time of the first event after the history (or of its last)
  std::vector<at::Tensor> context;  // per feature: [B]
  // Training batches only: the events whose loss is taken, [P] each: their items and, for ranking,
  // their actions and windows.
  at::Tensor predicted_items, predicted_actions, predicted_windows;
  at::Tensor seeds, num_positions;  // StepInputs
  at::Tensor sent;                  // all of these, concatenated

  // Sizes that the host needs, so that it need not ask the device.
  int64_t num_history = 0, num_candidates = 0;  // H, C
  int64_t max_history = 0, max_candidates = 0;  // of one window, or an upper bound
  bool predicts_candidates = false;             // ranking: only candidates, not all events

  int64_t batch_size() const { return history_offsets.size(0) - 1; }
  // All sizes. Two batches with equal sizes can use the same tensors.
  std::vector<int64_t> sizes() const;
};

// The events of a batch whose loss is taken, window by window. Retrieval needs only the items.
struct PredictedEvents {
  std::vector<int64_t> items, actions, windows;
};

Windows make_windows(const data::Batch& batch, Reading reading, at::Device device,
                     const PredictedEvents& predicted = {}, const StepInputs& inputs = {});

// Number of events at the end of a training batch's window that are not history.
int64_t withheld_events(Task task, const data::Batch& batch, int64_t window);

// Token counts of one window of a training batch.
struct WindowTokens {
  int64_t contexts = 0, history = 0, targets = 0;
};
WindowTokens window_tokens(const ModelSpec& spec, const data::Batch& batch, int64_t window);

// Whether a ranking batch predicts only its candidates, not all events.
bool predicts_candidates(const ModelSpec& spec, const data::Batch& batch);

// Tokens of the model's input for this many windows, events of history and candidates in total.
int64_t num_tokens(const ModelSpec& spec, int64_t windows, int64_t history, int64_t candidates);

// Tokens of the model's input for a training batch, as counted in tokens/s.
int64_t num_tokens(const ModelSpec& spec, const data::Batch& batch);

// Number of losses of a training batch.
int64_t num_predicted(const ModelSpec& spec, const data::Batch& batch);

// Whether context tokens see all of the history. That leaks later events into earlier states, so it
// is safe only if no earlier state is read.
bool context_sees_history(const ModelSpec& spec);

}  // namespace seqfuse::models::hstu
