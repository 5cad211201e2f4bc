#include "training/checkpoint/run_writer.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"

namespace seqfuse::training {

RunWriter::RunWriter(RunDirectory& run, const config::TrainerArgs& args) : run_(run), args_(args) {}

void RunWriter::append_metrics(const nlohmann::json& line) {
  const bool all_written = waiting_.empty();
  waiting_.push_back(line);
  try {
    write_waiting();
  } catch (const IoError& error) {
    if (args_.on_checkpoint_error == config::OnCheckpointError::stop) throw;
    if (all_written) {  // otherwise the failure was reported
      log::warning("train", "{}; training goes on, and the lines are written once they can be",
                   error.what());
    }
  }
}

bool RunWriter::save(const Checkpoint& checkpoint, bool last) {
  // Early stopping may go back this many evaluations; keep their checkpoints.
  const int64_t keep = std::max(args_.ckpt_keep, args_.early_stopping_patience + 1);
  try {
    save_checkpoint(run_.path(), checkpoint, keep);
    return true;
  } catch (const IoError& error) {
    if (last || args_.on_checkpoint_error == config::OnCheckpointError::stop) {
      throw_error<IoError>(
          "{}\n  {}; make room there, then --resume{}", error.what(), last_checkpoint(),
          last ? "" : " (TrainerArgs.on_checkpoint_error = 'continue' trains on without it)");
    }
    log::warning("train", "{}\n  {}; training goes on, as TrainerArgs.on_checkpoint_error says",
                 error.what(), last_checkpoint());
    return false;
  }
}

void RunWriter::finish() {
  write_waiting();
}

std::string RunWriter::last_checkpoint() const {
  const auto checkpoint = newest_checkpoint(run_.path());
  return checkpoint ? "the last checkpoint is " + checkpoint->string()
                    : "there is no checkpoint yet";
}

void RunWriter::write_waiting() {
  auto line = waiting_.begin();
  try {
    for (; line != waiting_.end(); ++line) run_.append_metrics(*line);
  } catch (const IoError&) {
    waiting_.erase(waiting_.begin(), line);
    throw;
  }
  waiting_.clear();
}

}  // namespace seqfuse::training
