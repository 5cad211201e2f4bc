// The batches of a training run, epoch after epoch, from any position. With several processes, each
// gets its share of the same batches.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <vector>

#include "config/args.h"
#include "data/batch/batch.h"
#include "training/loop/batch_share.h"

namespace seqfuse::training {

class BatchStream {
 public:
  // Throws DataError if an epoch would have no batch. dataset and samples must outlive the stream.
  // Batches have train_batch_size users per process; share selects this process's part.
  BatchStream(const data::Dataset& dataset, const std::vector<data::Sample>& samples,
              const config::TrainerArgs& trainer, bool shuffle, int processes = 1,
              BatchShare share = {});

  int64_t batches_per_epoch() const { return batches_per_epoch_; }
  int64_t users_per_batch() const { return options_.batch_size; }  // over all processes

  // The position in this stream of a run that consumed `batches` batches of users_per_batch users:
  // in the same epoch, without repeating a user.
  int64_t position_after(int64_t batches, int64_t users_per_batch) const;

  // Makes batch `index` (from 0, over all epochs) the next one; its epoch is index /
  // batches_per_epoch.
  void seek(int64_t index);
  int64_t position() const { return position_; }
  data::Batch next();
  // The batch that next() will return, without moving on. Null if it cannot be read: next() then throws
  // the reason, when it is that batch's turn.
  const data::Batch* peek();

 private:
  data::Batch read();

  const data::Dataset& dataset_;
  const std::vector<data::Sample>& samples_;
  data::LoaderOptions options_;
  int64_t batches_per_epoch_ = 0, position_ = 0;
  std::unique_ptr<data::BatchLoader> loader_;  // of the current epoch
  std::optional<data::Batch> peeked_;
  std::exception_ptr fault_;  // of a peek
};

}  // namespace seqfuse::training
