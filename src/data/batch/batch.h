// Jagged batches of user windows, prepared on background threads.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "data/batch/split.h"
#include "data/dataset/dataset.h"

namespace seqfuse::data {

// B windows with T events in total, without padding.
struct Batch {
  int64_t index = 0;                          // within the epoch
  std::vector<int64_t> users;                 // [B] rows of the dataset
  std::vector<int64_t> offsets;               // [B + 1], from 0 to T
  std::vector<int64_t> items;                 // [T]
  std::vector<int64_t> actions;               // [T], or empty
  std::vector<int64_t> timestamps;            // [T], or empty
  std::vector<int64_t> num_candidates;        // [B]
  std::vector<std::vector<int64_t>> context;  // per feature of the manifest: [B]

  int64_t batch_size() const { return static_cast<int64_t>(users.size()); }
  int64_t num_events() const { return offsets.empty() ? 0 : offsets.back(); }
};

// Copies windows from the dataset. Windows may be empty. Throws Error if a window exceeds its
// user's events, DataError if the dataset's file was damaged.
Batch make_batch(const Dataset& dataset, const Sample* samples, int64_t count, int64_t index);

struct LoaderOptions {
  int64_t batch_size = 128;
  bool shuffle = true;     // by (seed, epoch): the same order in every run and after every resume
  bool drop_last = false;  // drop a last batch that is not full
  uint64_t seed = 1;       // for the order, and for the start of windows with slack
  int threads = 1;         // 0: next() makes the batches
  int64_t prefetch = 4;    // batches prepared ahead
  // Selects some of a batch's samples by index; empty function: all. Called from any thread. The
  // batch may become empty.
  std::function<std::vector<int64_t>(std::span<const Sample>)> choose;
};

// Iterates over one epoch. Batches arrive in order for any number of threads. next() rethrows an
// exception of a background thread.
class BatchLoader {
 public:
  // dataset and samples must outlive the loader. first_batch: batches to skip (on resume).
  // Throws UsageError if batch_size < 1.
  BatchLoader(const Dataset& dataset, const std::vector<Sample>& samples,
              const LoaderOptions& options, int64_t epoch, int64_t first_batch = 0);
  ~BatchLoader();

  static int64_t batches_per_epoch(int64_t samples, const LoaderOptions& options);

  std::optional<Batch> next();  // empty at the end of the epoch

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace seqfuse::data
