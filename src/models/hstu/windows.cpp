#include "models/hstu/windows.h"

#include <algorithm>

#include "models/common/upload.h"

namespace seqfuse::models::hstu {
namespace {

// Number of events at the end of window b that are not history.
int64_t withheld(const data::Batch& batch, int64_t b, Reading reading) {
  const int64_t length = batch.offsets[b + 1] - batch.offsets[b];
  return std::min(length, reading == Reading::next_item ? 1 : batch.num_candidates[b]);
}

}  // namespace

Windows make_windows(const data::Batch& batch, Reading reading, at::Device device,
                     const PredictedEvents& predicted, const StepInputs& inputs) {
  const int64_t num_windows = batch.batch_size();
  // A batch without events does not tell which fields events have; empty tensors are then right.
  const bool has_actions = batch.items.empty() || !batch.actions.empty();
  const bool has_timestamps = batch.items.empty() || !batch.timestamps.empty();
  std::vector<int64_t> history_offsets{0}, candidate_offsets{0}, request_times;
  std::vector<int64_t> items, candidates, actions, timestamps;
  items.reserve(batch.items.size());
  const auto append = [](std::vector<int64_t>& to, const std::vector<int64_t>& from, int64_t begin,
                         int64_t end) {
    if (!from.empty()) to.insert(to.end(), from.begin() + begin, from.begin() + end);
  };
  Windows windows;
  for (int64_t b = 0; b < num_windows; ++b) {
    const int64_t begin = batch.offsets[b], end = batch.offsets[b + 1];
    const int64_t cut = end - withheld(batch, b, reading);
    append(items, batch.items, begin, cut);
    append(actions, batch.actions, begin, cut);
    append(timestamps, batch.timestamps, begin, cut);
    if (reading == Reading::candidates) append(candidates, batch.items, cut, end);
    if (has_timestamps) {
      request_times.push_back(begin == end ? 0 : batch.timestamps[std::min(cut, end - 1)]);
    }
    windows.max_history = std::max(windows.max_history, cut - begin);
    history_offsets.push_back(std::ssize(items));
    const int64_t candidates_before = candidate_offsets.back();
    candidate_offsets.push_back(std::ssize(candidates));
    windows.max_candidates =
        std::max(windows.max_candidates, candidate_offsets.back() - candidates_before);
  }
  windows.num_history = std::ssize(items);
  windows.num_candidates = std::ssize(candidates);
  items.insert(items.end(), candidates.begin(), candidates.end());

  Upload upload(device);
  upload.add(history_offsets, windows.history_offsets);
  upload.add(candidate_offsets, windows.candidate_offsets);
  upload.add(items, windows.items);
  if (has_actions) upload.add(actions, windows.actions);
  if (has_timestamps) {
    upload.add(timestamps, windows.timestamps);
    upload.add(request_times, windows.request_times);
  }
  windows.context.resize(batch.context.size());
  for (size_t i = 0; i < batch.context.size(); ++i)
    upload.add(batch.context[i], windows.context[i]);
  upload.add(predicted.items, windows.predicted_items);
  upload.add(predicted.actions, windows.predicted_actions);
  upload.add(predicted.windows, windows.predicted_windows);
  upload.add(inputs.seeds, windows.seeds);
  upload.add(inputs.num_positions, windows.num_positions);
  windows.sent = upload.send();
  return windows;
}

std::vector<int64_t> Windows::sizes() const {
  std::vector<int64_t> sizes{num_history, num_candidates, max_history, max_candidates};
  const auto add = [&](const at::Tensor& tensor) {
    sizes.push_back(tensor.defined() ? tensor.numel() : -1);
  };
  for (const at::Tensor* tensor :
       {&history_offsets, &candidate_offsets, &items, &actions, &timestamps, &request_times,
        &predicted_items, &predicted_actions, &predicted_windows, &seeds, &num_positions}) {
    add(*tensor);
  }
  for (const at::Tensor& tensor : context) add(tensor);
  return sizes;
}

int64_t num_tokens(const ModelSpec& spec, int64_t windows, int64_t history, int64_t candidates) {
  if (spec.network.architecture == config::Architecture::hstu_research) return history;
  const auto num_contexts = static_cast<int64_t>(spec.context.size());
  return windows * num_contexts + history * (spec.num_actions > 0 ? 2 : 1) + candidates;
}

int64_t num_tokens(const ModelSpec& spec, const data::Batch& batch) {
  int64_t tokens = 0;
  for (int64_t b = 0; b < batch.batch_size(); ++b) {
    const WindowTokens window = window_tokens(spec, batch, b);
    tokens += window.contexts + window.history + window.targets;
  }
  return tokens;
}

WindowTokens window_tokens(const ModelSpec& spec, const data::Batch& batch, int64_t window) {
  const int64_t apart = withheld_events(spec.task, batch, window);
  const int64_t events = batch.offsets[window + 1] - batch.offsets[window] - apart;
  WindowTokens tokens;
  tokens.contexts = num_tokens(spec, 1, 0, 0);
  tokens.history = num_tokens(spec, 0, events, 0);
  if (spec.task == Task::ranking) tokens.targets = apart;
  return tokens;
}

int64_t withheld_events(Task task, const data::Batch& batch, int64_t window) {
  return withheld(batch, window, task == Task::ranking ? Reading::candidates : Reading::next_item);
}

bool predicts_candidates(const ModelSpec& spec, const data::Batch& batch) {
  if (spec.max_candidates > 0) return true;
  for (int64_t b = 0; b < batch.batch_size(); ++b) {
    if (withheld(batch, b, Reading::candidates) > 0) return true;
  }
  return false;
}

int64_t num_predicted(const ModelSpec& spec, const data::Batch& batch) {
  const bool ranks = spec.task == Task::ranking;
  const bool all = ranks && !predicts_candidates(spec, batch);
  int64_t predicted = 0;
  for (int64_t b = 0; b < batch.batch_size(); ++b) {
    const int64_t events = batch.offsets[b + 1] - batch.offsets[b];
    const int64_t apart = withheld_events(spec.task, batch, b);
    predicted += all ? events : ranks ? apart : events - apart;
  }
  return predicted;
}

bool context_sees_history(const ModelSpec& spec) {
  return !spec.context.empty() && spec.max_candidates > 0 && spec.task == Task::ranking &&
         !spec.network.disable_contextual_mask;
}

}  // namespace seqfuse::models::hstu
