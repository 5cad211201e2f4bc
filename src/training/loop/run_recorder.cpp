#include "training/loop/run_recorder.h"

#include <fmt/format.h>

#include <string>

#include "base/log.h"

namespace seqfuse::training {

RunRecorder::RunRecorder(RunDirectory& run, RunWriter& writer, const config::Config& config,
                         const RunSchedule& schedule, const TrainingState& state,
                         bool show_progress)
    : writer_(writer),
      config_(config),
      schedule_(schedule),
      first_step_(state.step),
      epochs_(schedule.last_epoch(state)),
      logged_evaluation_(run.truncate_metrics_after(state.step)) {
  if (show_progress) progress_.emplace("train", "steps", schedule.total_steps() - first_step_);
}

void RunRecorder::add_step(const TrainingState& state, const Step& step, double seconds,
                           int64_t first_batch) {
  seconds_ += seconds;
  tokens_ += step.tokens;
  if (!progress_) return;
  if (step.losses_read > 0) loss_ = step.loss_sum / static_cast<double>(step.losses_read);
  progress_->update(
      state.step - first_step_,
      fmt::format("epoch {} of {}, loss {:.4f}, {} tokens/s", schedule_.epoch_of_batch(first_batch),
                  epochs_, loss_, format_count(tokens_per_second())));
}

void RunRecorder::write_step(TrainingState& state, const Step& step) {
  nlohmann::json line = {{"step", state.step},
                         {"epoch", schedule_.epoch(state)},
                         {"learning_rate", step.learning_rate},
                         {"seconds", state.seconds},
                         {"tokens_per_second", tokens_per_second()}};
  if (state.loss_positions > 0) {
    line["loss"] = state.loss_sum / static_cast<double>(state.loss_positions);
  }
  if (config_.optimizer.max_grad_norm > 0) line["gradient_norm"] = step.gradient_norm;
  writer_.append_metrics(line);
  state.loss_sum = 0;
  state.loss_positions = 0;
}

void RunRecorder::write_evaluation(const TrainingState& state, const metrics::Metrics& metrics,
                                   const std::optional<TargetCounts>& targets) {
  nlohmann::json line = {{"step", state.step}, {"epoch", schedule_.epoch(state)}};
  std::string text;
  for (const auto& [metric, value] : metrics) {
    line["evaluation"][metric] = value;
    text += fmt::format("  {} {:.4f}", metric, value);
  }
  if (targets) {
    line["targets"] = targets->targets;
    line["seen_targets"] = targets->seen;
  }
  if (!has_evaluation(state)) writer_.append_metrics(line);
  log::info("train", "step {} of {}:{}", state.step, schedule_.total_steps(), text);
}

}  // namespace seqfuse::training
