#include "cli/batch_job.h"

#include <fmt/format.h>

#include <filesystem>
#include <optional>
#include <utility>

#include "base/log.h"
#include "base/progress.h"

namespace seqfuse::cli {
namespace {

// After which a process counts as hanging, in seconds: a block takes a fraction of it.
constexpr double kLongestBlock = 600;

}  // namespace

BatchJob::BatchJob(const serving::TrainedRun& run, serving::RequestReader& reader,
                   serving::RequestBlocks& blocks, serving::BatchRecommender& recommender,
                   const serving::UnfinishedBatch& unfinished, distributed::ProcessGroup& group,
                   std::function<void()> check_stop)
    : run_(run),
      reader_(reader),
      blocks_(blocks),
      recommender_(recommender),
      unfinished_(unfinished),
      group_(group),
      check_stop_(std::move(check_stop)) {}

int64_t BatchJob::answer_blocks() {
  std::optional<Progress> progress;
  if (group_.is_first()) progress.emplace("recommend", "users", 0);
  for (int64_t block = 0;; ++block) {
    check_stop_();
    const std::vector<serving::UserRequest>& requests = blocks_.next();
    if (requests.empty()) {
      if (done_before_ > 0) log::info("recommend", "{} blocks were done before", done_before_);
      return block;
    }
    if (block % group_.size() == group_.rank()) answer(block, requests);
    if (progress) progress->update(blocks_.users(), left());
  }
}

void BatchJob::answer(int64_t block, const std::vector<serving::UserRequest>& requests) {
  group_.begin(fmt::format("block {} of the users", block), kLongestBlock);
  serving::AnsweredBlock answers;
  if (auto before = unfinished_.find(block, requests)) {
    ++done_before_;
    answers = *std::move(before);
  } else {
    answers.users = recommender_.recommend(requests);
    answers.report = recommender_.take_report();
    check_stop_();
    unfinished_.keep(block, requests, answers);
  }
  tell_warnings(answers.report);
}

serving::BatchReport BatchJob::write(int64_t blocks, serving::OutputFormat format) {
  serving::BatchReport total;
  unfinished_.finish([&](const std::filesystem::path& file) {
    const auto writer =
        serving::make_writer(file, {.format = format,
                                    .score_names = recommender_.score_names(),
                                    .vocabulary = *run_.vocabulary,
                                    .about = {{"seqfuse.run", run_.path.string()},
                                              {"seqfuse.step", std::to_string(run_.step)}}});
    for (int64_t block = 0; block < blocks; ++block) {
      check_stop_();
      group_.begin(fmt::format("writing of block {}", block), kLongestBlock);
      const serving::AnsweredBlock answers = unfinished_.read(block);
      writer->add(answers.users);
      total.add(answers.report);
    }
    writer->close();
  });
  tell_warnings(total);
  return total;
}

void BatchJob::tell_warnings(const serving::BatchReport& report) {
  for (const std::string& warning : report.warnings) {
    if (told_.insert(warning).second) log::warning("recommend", "{}", warning);
  }
}

double BatchJob::seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

std::string BatchJob::left() const {
  const auto done = reader_.done();
  if (!done || *done <= 0) return "";
  return fmt::format("{:.0f} %, {} left", 100 * *done,
                     format_duration(seconds() * (1 - *done) / *done));
}

}  // namespace seqfuse::cli
