#include "training/loop/batch_stream.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace seqfuse::training {

BatchStream::BatchStream(const data::Dataset& dataset, const std::vector<data::Sample>& samples,
                         const config::TrainerArgs& trainer, bool shuffle, int processes,
                         BatchShare share)
    : dataset_(dataset), samples_(samples) {
  options_.batch_size = trainer.train_batch_size * processes;
  options_.choose = std::move(share);
  options_.shuffle = shuffle;
  options_.drop_last = trainer.drop_last;
  options_.seed = static_cast<uint64_t>(trainer.seed);
  if (trainer.pipeline_type == config::Pipeline::none) {
    options_.threads = 0;
  } else {
    options_.threads = static_cast<int>(trainer.num_loader_threads);
    options_.prefetch = trainer.pipeline_type == config::Pipeline::prefetch ? 16 : 4;
  }
  const auto windows = static_cast<int64_t>(samples.size());
  batches_per_epoch_ = data::BatchLoader::batches_per_epoch(windows, options_);
  SEQFUSE_CHECK_AS(DataError, windows > 0,
                   "{} has no user with enough events for a training window: check the split and "
                   "DatasetArgs.max_num_candidates",
                   dataset.directory().string());
  SEQFUSE_CHECK_AS(DataError, batches_per_epoch_ > 0,
                   "{} has {} training windows, fewer than TrainerArgs.train_batch_size {} of {} "
                   "process(es), and drop_last leaves none: make the batch smaller or set "
                   "drop_last = False",
                   dataset.directory().string(), windows, trainer.train_batch_size, processes);
}

int64_t BatchStream::position_after(int64_t batches, int64_t users_per_batch) const {
  data::LoaderOptions other = options_;
  other.batch_size = users_per_batch;
  const int64_t per_epoch =
      std::max<int64_t>(data::BatchLoader::batches_per_epoch(std::ssize(samples_), other), 1);
  const int64_t users = batches % per_epoch * users_per_batch;
  const int64_t done = (users + options_.batch_size - 1) / options_.batch_size;
  return batches / per_epoch * batches_per_epoch_ + std::min(done, batches_per_epoch_);
}

void BatchStream::seek(int64_t index) {
  loader_.reset();
  peeked_.reset();
  fault_ = nullptr;
  position_ = index;
}

data::Batch BatchStream::next() {
  if (fault_) std::rethrow_exception(std::exchange(fault_, nullptr));
  data::Batch batch = peeked_ ? std::move(*peeked_) : read();
  peeked_.reset();
  ++position_;
  return batch;
}

const data::Batch* BatchStream::peek() {
  if (!peeked_ && !fault_) {
    try {
      peeked_ = read();
    } catch (...) {
      fault_ = std::current_exception();
    }
  }
  return peeked_ ? &*peeked_ : nullptr;
}

// The batch at the position.
data::Batch BatchStream::read() {
  if (!loader_ || position_ % batches_per_epoch_ == 0) {
    loader_.reset();  // join its threads before the next ones start
    loader_ = std::make_unique<data::BatchLoader>(dataset_, samples_, options_,
                                                  position_ / batches_per_epoch_,
                                                  position_ % batches_per_epoch_);
  }
  std::optional<data::Batch> batch = loader_->next();
  SEQFUSE_CHECK(batch.has_value(), "the loader ended before the epoch did");
  return std::move(*batch);
}

}  // namespace seqfuse::training
