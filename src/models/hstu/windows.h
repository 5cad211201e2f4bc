// What of a batch a model reads: the history of each window, and its candidates.
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
  candidates,  // ranking: all events, the candidates set apart
};

// B windows, with H events of history and C candidates in all. Tensors are int64, on the model's
// device.
struct Windows {
  at::Tensor history_offsets, candidate_offsets;  // [B + 1]
  at::Tensor items;          // [H + C]: the histories one after the other, then the candidates
  at::Tensor actions;        // [H], of the history; undefined where events have none
  at::Tensor timestamps;     // [H]; undefined where events have none
  at::Tensor request_times;  // [B]: when the first event after the history came (or its last)
  std::vector<at::Tensor> context;  // a feature each: [B]
  // Of training batches, the events whose loss is taken: their items and, of ranking, their actions
  // and the windows they are in. [P] each.
  at::Tensor predicted_items, predicted_actions, predicted_windows;
  at::Tensor seeds, num_positions;  // StepInputs
  at::Tensor sent;                  // all of these one after the other

  // Sizes that the host needs: nothing has to be asked of the device.
  int64_t num_history = 0, num_candidates = 0;  // H, C
  int64_t max_history = 0, max_candidates = 0;  // of one window, or above
  bool predicts_candidates = false;             // ranking: and not all events

  int64_t batch_size() const { return history_offsets.size(0) - 1; }
  // All sizes: of two batches for which they are equal, one fits in the other's tensors.
  std::vector<int64_t> sizes() const;
};

// The events of a batch whose loss is taken, window by window. Retrieval needs the items alone.
struct PredictedEvents {
  std::vector<int64_t> items, actions, windows;
};

Windows make_windows(const data::Batch& batch, Reading reading, at::Device device,
                     const PredictedEvents& predicted = {}, const StepInputs& inputs = {});

// Events at the end of a window of a training batch that are not history.
int64_t withheld_events(Task task, const data::Batch& batch, int64_t window);

// Tokens of one window of a training batch.
struct WindowTokens {
  int64_t contexts = 0, history = 0, targets = 0;
};
WindowTokens window_tokens(const ModelSpec& spec, const data::Batch& batch, int64_t window);

// Whether the candidates are what is predicted of a ranking batch, and not all events.
bool predicts_candidates(const ModelSpec& spec, const data::Batch& batch);

// Positions of the model's input for so many windows that hold so many events of history and
// candidates in all.
int64_t num_tokens(const ModelSpec& spec, int64_t windows, int64_t history, int64_t candidates);

// Positions of the model's input in a training batch: what a rate in tokens/s counts.
int64_t num_tokens(const ModelSpec& spec, const data::Batch& batch);

// How many losses a training batch has.
int64_t num_predicted(const ModelSpec& spec, const data::Batch& batch);

// Whether the tokens of the context see all of the history. That would carry later events into
// earlier states, and is harmless only where no earlier state is read.
bool context_sees_history(const ModelSpec& spec);

}  // namespace seqfuse::models::hstu
