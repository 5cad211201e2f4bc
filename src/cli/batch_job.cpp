#include "cli/batch_job.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <exception>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/parallel.h"
#include "base/progress_line.h"

namespace seqfuse::cli {
namespace {

// A process counts as hanging when one block takes longer than this; it should take a fraction.
constexpr double kLongestBlock = 600;  // seconds
// The most blocks that wait for the model, and that wait to be written.
constexpr size_t kPrepared = 2, kUnwritten = 4;

// With two threads, the host assembles a pass while the GPU works on another one. On the CPU, the
// passes of one block keep all cores busy.
int answering_threads(const serving::TrainedRun& run) {
  return run.predictor->device().is_cuda() ? 2 : 1;
}

}  // namespace

BatchJob::BatchJob(const serving::TrainedRun& run, serving::RequestReader& reader,
                   serving::RequestBlocks& blocks, const serving::BatchRecommender& recommender,
                   const serving::UnfinishedBatch& unfinished, distributed::ProcessGroup& group,
                   serving::BatchProgress& progress, std::function<void()> check_stop)
    : run_(run),
      reader_(reader),
      blocks_(blocks),
      recommender_(recommender),
      unfinished_(unfinished),
      group_(group),
      progress_(progress),
      check_stop_(std::move(check_stop)) {}

serving::BatchReport BatchJob::run(const std::string& users, serving::OutputFormat format) {
  serving::BatchReport total;
  std::optional<ProgressLine> line;
  if (group_.is_first()) {
    line.emplace("recommend", [this] { return progress_.text(seconds(), group_.size()); });
  }
  if (!group_.several()) {
    unfinished_.finish([&](const std::filesystem::path& file) {
      const auto writer = make_writer(file, format);
      answer_blocks(users, [&](const serving::AnsweredBlock& answers) {
        writer->add(answers.users);
        total.add(answers.report);
      });
      writer->close();
    });
    return total;
  }
  const int64_t blocks = answer_blocks(users, [](const serving::AnsweredBlock&) {});
  group_.barrier("end of the users");
  if (!group_.is_first()) return total;
  unfinished_.finish([&](const std::filesystem::path& file) {
    const auto writer = make_writer(file, format);
    for (int64_t block = 0; block < blocks; ++block) {
      check_stop_();
      group_.begin(fmt::format("writing of block {}", block), kLongestBlock);
      writing_.time([&] {
        const serving::AnsweredBlock answers = unfinished_.read(block);
        writer->add(answers.users);
        total.add(answers.report);
      });
    }
    writer->close();
  });
  tell_warnings(total);
  return total;
}

int64_t BatchJob::answer_blocks(const std::string& users, const Take& take) {
  Channel<Task> to_answer(kPrepared);
  Channel<Block> to_keep(kUnwritten);
  std::vector<std::jthread> answering;
  std::jthread keeping;
  // Ends threads that wait for a channel, also if another thread cannot be started.
  struct Closing {
    Channel<Task>& tasks;
    Channel<Block>& blocks;
    ~Closing() {
      tasks.close();
      blocks.close();
    }
  } closing{to_answer, to_keep};
  for (int thread = 0; thread < answering_threads(run_); ++thread) {
    answering.emplace_back([&] {
      at::set_num_threads(num_threads());  // a setting of each thread
      while (auto task = to_answer.pop()) answering_.time([&] { (*task)(); });
    });
  }
  std::exception_ptr keeping_failure, reading_failure;
  keeping = std::jthread([&] {
    try {
      keep_blocks(to_keep, take);
    } catch (...) {
      keeping_failure = std::current_exception();
      failed_ = true;
    }
    to_keep.close();
    to_answer.close();
  });
  int64_t blocks = 0;
  try {
    blocks = read_blocks(to_answer, to_keep);
  } catch (...) {
    reading_failure = std::current_exception();
  }
  to_keep.close();
  keeping.join();
  to_answer.close();
  answering.clear();
  // A failure to keep blocks may have caused the one to read them.
  if (keeping_failure) std::rethrow_exception(keeping_failure);
  if (reading_failure) std::rethrow_exception(reading_failure);
  if (blocks_.users() == 0) throw_error<DataError>("{} names no users", users);
  if (done_before_ > 0) log::info("recommend", "{} blocks were done before", done_before_);
  return blocks;
}

int64_t BatchJob::read_blocks(Channel<Task>& to_answer, Channel<Block>& to_keep) {
  for (int64_t number = 0;; ++number) {
    check_stop_();
    group_.begin(fmt::format("reading of block {} of the users", number), kLongestBlock);
    Task task;
    Block block;
    const bool more = reading_.time([&] {
      const std::vector<serving::UserRequest>& requests = blocks_.next();
      if (requests.empty()) return false;
      progress_.read(blocks_.users(), reader_.done());
      if (number % group_.size() == group_.rank()) block = prepare(number, requests, task);
      return true;
    });
    if (!more) return number;
    if (task.valid() && !to_answer.push(std::move(task))) return number;
    if (block.answers.valid() && !to_keep.push(std::move(block))) return number;
  }
}

BatchJob::Block BatchJob::prepare(int64_t number, const std::vector<serving::UserRequest>& requests,
                                  Task& task) {
  Block block{.number = number, .key = unfinished_.key_of(requests)};
  if (auto before = unfinished_.find(number, block.key)) {
    block.done_before = true;
    progress_.done_before(std::ssize(requests));
    std::promise<serving::AnsweredBlock> answers;
    answers.set_value(*std::move(before));
    block.answers = answers.get_future();
    return block;
  }
  task = Task([this, prepared = recommender_.prepare(requests)]() mutable {
    if (failed_) return serving::AnsweredBlock();
    serving::AnsweredBlock answers = recommender_.answer(std::move(prepared));
    check_stop_();
    return answers;
  });
  block.answers = task.get_future();
  return block;
}

void BatchJob::keep_blocks(Channel<Block>& to_keep, const Take& take) {
  while (auto block = to_keep.pop()) {
    const serving::AnsweredBlock answers = block->answers.get();
    group_.begin(fmt::format("block {} of the users", block->number), kLongestBlock);
    done_before_ += block->done_before;
    writing_.time([&] {
      if (!block->done_before) unfinished_.keep(block->number, block->key, answers);
      take(answers);
    });
    tell_warnings(answers.report);
  }
}

std::unique_ptr<serving::RecommendationWriter> BatchJob::make_writer(
    const std::filesystem::path& file, serving::OutputFormat format) const {
  return serving::make_writer(file, {.format = format,
                                     .score_names = recommender_.score_names(),
                                     .vocabulary = *run_.vocabulary,
                                     .about = {{"seqfuse.run", run_.path.string()},
                                               {"seqfuse.step", std::to_string(run_.step)}}});
}

void BatchJob::tell_warnings(const serving::BatchReport& report) {
  for (const std::string& warning : report.warnings) {
    if (told_.insert(warning).second) log::warning("recommend", "{}", warning);
  }
}

double BatchJob::seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

std::string BatchJob::stage_seconds() const {
  return fmt::format("reading and preparing {:.2f} s, the model {:.2f} s, writing {:.2f} s",
                     reading_.seconds(), answering_.seconds() / answering_threads(run_),
                     writing_.seconds());
}

}  // namespace seqfuse::cli
