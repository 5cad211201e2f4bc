// A batch of recommendations as a pipeline: one thread reads requests and prepares them, others have
// the model answer them, and one keeps the answers and writes them.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <set>
#include <string>

#include "base/busy_time.h"
#include "base/channel.h"
#include "distributed/process_group.h"
#include "serving/batch/batch_progress.h"
#include "serving/batch/batch_recommender.h"
#include "serving/batch/recommendation_writer.h"
#include "serving/batch/request_blocks.h"
#include "serving/batch/request_reader.h"
#include "serving/batch/unfinished_batch.h"
#include "serving/trained_run.h"

namespace seqfuse::cli {

class BatchJob {
 public:
  // All must outlive this object. progress: told by the recommender of answers, by this object of the
  // rest. check_stop is called between blocks, by several threads, and throws to stop.
  BatchJob(const serving::TrainedRun& run, serving::RequestReader& reader,
           serving::RequestBlocks& blocks, const serving::BatchRecommender& recommender,
           const serving::UnfinishedBatch& unfinished, distributed::ProcessGroup& group,
           serving::BatchProgress& progress, std::function<void()> check_stop);

  // Answers the blocks of this process: those whose number modulo the number of processes is its
  // rank. A single process writes the output as it goes. Of several, the first writes it at the end,
  // from the blocks of all, and the others return an empty report. Prints progress, and each warning
  // once. users: where they come from, for messages. Throws DataError if there are none.
  serving::BatchReport run(const std::string& users, serving::OutputFormat format);

  double seconds() const;                            // since the start
  bool went_on() const { return done_before_ > 0; }  // with blocks of an interrupted batch
  std::string stage_seconds() const;  // of work in each stage of this process, for people

 private:
  struct Block {
    int64_t number = 0;
    std::string key;
    bool done_before = false;
    std::future<serving::AnsweredBlock> answers;
  };
  using Task = std::packaged_task<serving::AnsweredBlock()>;
  using Take = std::function<void(const serving::AnsweredBlock&)>;

  // Calls take() in another thread, for each block of this process in order. Returns the number of
  // blocks of all processes.
  int64_t answer_blocks(const std::string& users, const Take& take);
  int64_t read_blocks(Channel<Task>& to_answer, Channel<Block>& to_keep);
  Block prepare(int64_t number, const std::vector<serving::UserRequest>& requests, Task& task);
  void keep_blocks(Channel<Block>& to_keep, const Take& take);
  std::unique_ptr<serving::RecommendationWriter> make_writer(const std::filesystem::path& file,
                                                             serving::OutputFormat format) const;
  void tell_warnings(const serving::BatchReport& report);  // each once

  const serving::TrainedRun& run_;
  serving::RequestReader& reader_;
  serving::RequestBlocks& blocks_;
  const serving::BatchRecommender& recommender_;
  const serving::UnfinishedBatch& unfinished_;
  distributed::ProcessGroup& group_;
  serving::BatchProgress& progress_;
  const std::function<void()> check_stop_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::set<std::string> told_;
  int64_t done_before_ = 0;
  std::atomic<bool> failed_ = false;
  BusyTime reading_, answering_, writing_;
};

}  // namespace seqfuse::cli
