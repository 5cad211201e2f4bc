#include "training/batch_padding.h"

#include <algorithm>
#include <bit>

namespace seqfuse::training {
namespace {

// What is added of events of history, or of candidates.
struct Padding {
  // size: of all windows; longest: of one that may come, at least 1.
  Padding(int64_t size, int64_t longest_in) : longest(longest_in) {
    const auto below = std::bit_floor(static_cast<uint64_t>(size + longest - 1));
    const int64_t step = std::max<int64_t>(static_cast<int64_t>(below) / 16, 1);
    const int64_t end = (size + longest + step - 1) / step * step;
    left = end - size;
    windows = 1 + (step - 1 + longest - 1) / longest;
  }
  Padding() = default;

  int64_t take() {
    const int64_t taken = std::min(left, longest);
    left -= taken;
    return taken;
  }

  int64_t longest = 0, left = 0, windows = 0;
};

}  // namespace

data::Batch pad_batch(const data::Batch& batch, const models::ModelSpec& spec) {
  const int64_t num_windows = batch.batch_size();
  const bool ranks = spec.task == models::Task::ranking;
  bool alike = true;
  int64_t history = 0, candidates = 0, longest = std::max<int64_t>(spec.max_history, 1);
  int64_t most_candidates = std::max<int64_t>(spec.max_candidates, 1);
  for (int64_t b = 0; b < num_windows; ++b) {
    const int64_t events = batch.offsets[b + 1] - batch.offsets[b];
    const int64_t apart = std::min(events, ranks ? batch.num_candidates[b] : 1);
    alike &= events == batch.offsets[1] && batch.num_candidates[b] == batch.num_candidates[0];
    history += events - apart;
    candidates += apart;
    longest = std::max(longest, events - apart);
    if (ranks) most_candidates = std::max(most_candidates, apart);
  }
  if (alike) return batch;

  data::Batch padded = batch;
  Padding of_history(history, longest);
  Padding of_candidates =
      ranks && candidates > 0 ? Padding(candidates, most_candidates) : Padding();
  const int64_t windows = std::max(of_history.windows, of_candidates.windows);
  for (int64_t i = 0; i < windows; ++i) {
    const int64_t targets = of_candidates.take(), events = of_history.take() + targets;
    padded.users.push_back(0);
    padded.num_candidates.push_back(targets);
    // The last event of a retrieval window is no history.
    padded.offsets.push_back(padded.offsets.back() + events + (!ranks && events > 0 ? 1 : 0));
  }
  const auto lengthen = [&](std::vector<int64_t>& values) {
    if (!values.empty()) values.resize(padded.num_events(), 0);
  };
  padded.items.resize(padded.num_events(), 0);
  lengthen(padded.actions);
  lengthen(padded.timestamps);
  for (std::vector<int64_t>& feature : padded.context) feature.resize(padded.batch_size(), 0);
  return padded;
}

}  // namespace seqfuse::training
