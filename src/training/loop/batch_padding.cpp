#include "training/loop/batch_padding.h"

#include <algorithm>
#include <bit>
#include <vector>

namespace seqfuse::training {
namespace {

// The spacing of the values that sizes near this one are rounded up to.
int64_t step_at(int64_t size) {
  return std::max<int64_t>(
      static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(std::max<int64_t>(size - 1, 1)))) /
          16,
      1);
}

int64_t round_up(int64_t size) {
  const int64_t step = step_at(size);
  return (size + step - 1) / step * step;
}

// Rounds up one window's length; most: what the model is made for.
int64_t round_length(int64_t length, int64_t most) {
  return std::max(length, std::min(round_up(length), most));
}

// Padding for events of history, or for candidates.
struct Padding {
  // size: over all windows; longest: of one.
  Padding(int64_t size, int64_t longest_in)
      : longest(std::max<int64_t>(longest_in, 1)),
        left(round_up(size) - size),
        windows((step_at(size) + longest - 2) / longest) {}
  Padding() = default;

  int64_t take() {
    const int64_t taken = std::min(left, longest);
    left -= taken;
    return taken;
  }

  int64_t longest = 0, left = 0;
  int64_t windows = 0;  // enough for every remainder that this size can leave
};

}  // namespace

data::Batch pad_batch(const data::Batch& batch, const models::hstu::ModelSpec& spec) {
  const bool ranks = spec.task == models::hstu::Task::ranking;
  bool all_longest = true, same_candidates = true;
  int64_t history = 0, candidates = 0, longest = 0, most_candidates = 0;
  for (int64_t b = 0; b < batch.batch_size(); ++b) {
    const int64_t apart = models::hstu::withheld_events(spec.task, batch, b);
    const int64_t events = batch.offsets[b + 1] - batch.offsets[b] - apart;
    all_longest &= events == spec.max_history;
    same_candidates &= batch.num_candidates[b] == batch.num_candidates[0];
    history += events;
    candidates += apart;
    longest = std::max(longest, events);
    most_candidates = std::max(most_candidates, apart);
  }
  if (all_longest && same_candidates) return batch;

  data::Batch padded = batch;
  Padding of_history(history, round_length(longest, spec.max_history));
  Padding of_candidates;
  if (ranks && !same_candidates) {
    of_candidates = Padding(candidates, round_length(most_candidates, spec.max_candidates));
  }
  const int64_t windows = std::max(of_history.windows, of_candidates.windows);
  for (int64_t i = 0; i < windows; ++i) {
    const int64_t targets = of_candidates.take(), events = of_history.take() + targets;
    padded.users.push_back(0);
    padded.num_candidates.push_back(targets);
    // The last event of a retrieval window is not history.
    padded.offsets.push_back(padded.offsets.back() + events + (!ranks && events > 0 ? 1 : 0));
  }
  const auto lengthen = [&](std::vector<int64_t>& values) {
    if (!values.empty()) values.resize(padded.num_events(), 0);
  };
  padded.items.resize(padded.num_events(), 1);
  lengthen(padded.actions);
  lengthen(padded.timestamps);
  for (std::vector<int64_t>& feature : padded.context) feature.resize(padded.batch_size(), 0);
  return padded;
}

void round_lengths(models::hstu::Windows& windows, const models::hstu::ModelSpec& spec) {
  windows.max_history = round_length(windows.max_history, spec.max_history);
  windows.max_candidates = round_length(windows.max_candidates, spec.max_candidates);
}

}  // namespace seqfuse::training
