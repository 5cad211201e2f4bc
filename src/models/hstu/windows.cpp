#include "models/hstu/windows.h"

#include <algorithm>

namespace seqfuse::models {
namespace {

// Events at the end of window b that are not history.
int64_t withheld(const data::Batch& batch, int64_t b, Reading reading) {
  const int64_t length = batch.offsets[b + 1] - batch.offsets[b];
  return std::min(length, reading == Reading::next_item ? 1 : batch.num_candidates[b]);
}

}  // namespace

int64_t Windows::num_candidates() const {
  return candidate_offsets[-1].item<int64_t>();
}

at::Tensor to_tensor(const std::vector<int64_t>& values) {
  return torch::tensor(at::ArrayRef<int64_t>(values), torch::kLong);
}

Windows make_windows(const data::Batch& batch, Reading reading) {
  const int64_t num_windows = batch.batch_size();
  std::vector<int64_t> history_offsets{0}, candidate_offsets{0}, request_times;
  std::vector<int64_t> items, candidates, actions, timestamps;
  items.reserve(batch.items.size());
  const auto append = [](std::vector<int64_t>& to, const std::vector<int64_t>& from, int64_t begin,
                         int64_t end) {
    if (!from.empty()) to.insert(to.end(), from.begin() + begin, from.begin() + end);
  };
  for (int64_t b = 0; b < num_windows; ++b) {
    const int64_t begin = batch.offsets[b], end = batch.offsets[b + 1];
    const int64_t cut = end - withheld(batch, b, reading);
    append(items, batch.items, begin, cut);
    append(actions, batch.actions, begin, cut);
    append(timestamps, batch.timestamps, begin, cut);
    if (reading == Reading::candidates) append(candidates, batch.items, cut, end);
    if (!batch.timestamps.empty()) {
      request_times.push_back(begin == end ? 0 : batch.timestamps[std::min(cut, end - 1)]);
    }
    history_offsets.push_back(static_cast<int64_t>(items.size()));
    candidate_offsets.push_back(static_cast<int64_t>(candidates.size()));
  }
  items.insert(items.end(), candidates.begin(), candidates.end());

  Windows windows;
  windows.history_offsets = to_tensor(history_offsets);
  windows.candidate_offsets = to_tensor(candidate_offsets);
  windows.items = to_tensor(items);
  if (!batch.actions.empty()) windows.actions = to_tensor(actions);
  if (!batch.timestamps.empty()) {
    windows.timestamps = to_tensor(timestamps);
    windows.request_times = to_tensor(request_times);
  }
  for (const std::vector<int64_t>& feature : batch.context) {
    windows.context.push_back(to_tensor(feature));
  }
  return windows;
}

int64_t num_tokens(const ModelSpec& spec, const data::Batch& batch) {
  const Reading reading = spec.task == Task::ranking ? Reading::candidates : Reading::next_item;
  int64_t history = 0, candidates = 0;
  for (int64_t b = 0; b < batch.batch_size(); ++b) {
    const int64_t apart = withheld(batch, b, reading);
    history += batch.offsets[b + 1] - batch.offsets[b] - apart;
    if (reading == Reading::candidates) candidates += apart;
  }
  if (spec.network.architecture == "hstu_research") return history;
  const auto num_contexts = static_cast<int64_t>(spec.context.size());
  return batch.batch_size() * num_contexts + history * (spec.num_actions > 0 ? 2 : 1) + candidates;
}

}  // namespace seqfuse::models
