// A batch of recommendations: blocks of answers, of which each process computes its share, and the
// output from all of them.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "distributed/process_group.h"
#include "serving/batch/batch_recommender.h"
#include "serving/batch/recommendation_writer.h"
#include "serving/batch/request_blocks.h"
#include "serving/batch/request_reader.h"
#include "serving/batch/unfinished_batch.h"
#include "serving/trained_run.h"

namespace seqfuse::cli {

class BatchJob {
 public:
  // All must outlive this object. check_stop is called between blocks, and throws to stop.
  BatchJob(const serving::TrainedRun& run, serving::RequestReader& reader,
           serving::RequestBlocks& blocks, serving::BatchRecommender& recommender,
           const serving::UnfinishedBatch& unfinished, distributed::ProcessGroup& group,
           std::function<void()> check_stop);

  // Keeps the blocks of this process: those whose number modulo the number of processes is its
  // rank. Returns the number of blocks of all processes.
  int64_t answer_blocks();

  // Writes the output from all blocks; for the first process. Tells the warnings of all.
  serving::BatchReport write(int64_t blocks, serving::OutputFormat format);

  double seconds() const;  // since the start

 private:
  void answer(int64_t block, const std::vector<serving::UserRequest>& requests);
  void tell_warnings(const serving::BatchReport& report);  // each once
  std::string left() const;                                // "40 %, 12 s left", where known

  const serving::TrainedRun& run_;
  serving::RequestReader& reader_;
  serving::RequestBlocks& blocks_;
  serving::BatchRecommender& recommender_;
  const serving::UnfinishedBatch& unfinished_;
  distributed::ProcessGroup& group_;
  const std::function<void()> check_stop_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::set<std::string> told_;
  int64_t done_before_ = 0;
};

}  // namespace seqfuse::cli
