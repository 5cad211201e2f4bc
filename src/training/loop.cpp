#include "training/loop.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <new>
#include <string_view>

#include "base/error.h"
#include "base/log.h"
#include "base/names.h"
#include "base/progress.h"
#include "training/interrupt.h"
#include "training/schedule.h"
#include "training/split_options.h"
#include "training/weights.h"

namespace seqfuse::training {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

int64_t total_steps_of(const config::TrainerArgs& trainer, int64_t batches_per_epoch) {
  int64_t steps = std::numeric_limits<int64_t>::max();
  if (trainer.num_epochs || !trainer.max_train_iters) {
    const int64_t batches = trainer.num_epochs.value_or(1) * batches_per_epoch;
    // A last step may hold fewer batches than the others.
    const int64_t per_step = trainer.gradient_accumulation_steps;
    steps = (batches + per_step - 1) / per_step;
  }
  return std::min(steps, trainer.max_train_iters.value_or(steps));
}

double watched(const Metrics& metrics, const std::string& name) {
  std::vector<std::string> names;
  for (const auto& [metric, value] : metrics) {
    if (name.empty() || metric == name) return value;
    names.push_back(metric);
  }
  throw_error<UsageError>("TrainerArgs.early_stopping_metric is '{}'{}: the metrics are {}", name,
                          did_you_mean(name, names), fmt::join(names, ", "));
}

// torch reports a failed allocation on the CPU as an error like any other.
bool is_out_of_memory(const std::exception& error) {
  return dynamic_cast<const std::bad_alloc*>(&error) != nullptr ||
         std::string_view(error.what()).find("can't allocate memory") != std::string_view::npos;
}

}  // namespace

Trainer::Trainer(TaskModel& model, const data::Dataset& dataset, const data::Split& split,
                 const config::Config& config)
    : model_(model),
      dataset_(dataset),
      config_(config),
      evaluation_samples_(evaluation_samples(config.dataset, split)),
      stream_(dataset, split.train, config.trainer, config.dataset.shuffle),
      optimizer_(model.module(), config.optimizer),
      total_steps_(total_steps_of(config.trainer, stream_.batches_per_epoch())) {
  model_.module().train();
}

void Trainer::resume(const Checkpoint& checkpoint) {
  state_ = state_from_json(checkpoint.state, model_.spec(), config_.trainer.seed);
  load_weights(model_.module(), checkpoint);
  optimizer_.load_state(checkpoint.optimizer, state_.optimizer_steps);
  stream_.seek(state_.batch);
  saved_step_ = state_.step;
}

TrainResult Trainer::run(RunDirectory& run, bool show_progress) {
  run_ = &run;
  run.truncate_metrics_after(state_.step);
  const config::TrainerArgs& trainer = config_.trainer;
  const InterruptGuard interrupt;
  std::optional<Progress> progress;
  if (show_progress) progress.emplace("train", "steps", total_steps_ - state_.step);
  const int64_t first_step = state_.step;
  const int64_t epochs = epoch_of(total_steps_ * trainer.gradient_accumulation_steps - 1) + 1;
  int64_t tokens = 0;
  double seconds = 0;
  while (state_.step < total_steps_ && !early_stop_due() && interrupt.signal() == 0) {
    const auto start = Clock::now();
    const int64_t batches_before = state_.batch;
    const Step step = train_step_or_save();
    ++state_.step;
    state_.batch = stream_.position();
    state_.optimizer_steps = optimizer_.steps();
    state_.loss_sum += step.loss_sum;
    state_.loss_positions += step.positions;
    const double elapsed = seconds_since(start);
    state_.seconds += elapsed;
    seconds += elapsed;
    tokens += step.tokens;
    const double tokens_per_second = static_cast<double>(tokens) / seconds;

    if (progress) {
      const double loss = step.loss_sum / static_cast<double>(std::max<int64_t>(step.positions, 1));
      progress->update(
          state_.step - first_step,
          fmt::format("epoch {} of {}, loss {:.4f}, {} tokens/s", epoch_of(batches_before) + 1,
                      epochs, loss, format_count(tokens_per_second)));
    }
    const bool last = state_.step == total_steps_;
    if (last || (trainer.log_interval > 0 && state_.step % trainer.log_interval == 0)) {
      log_step(step, tokens_per_second);
    }
    const int64_t interval = trainer.ckpt_save_interval;
    bool save_due = interval > 0 && state_.step % interval == 0;
    if (last || evaluation_due(batches_before)) {
      evaluate(show_progress);
      save_due |= interval < 0;
    }
    if (save_due || last) save();
  }
  progress.reset();
  if (saved_step_ != state_.step) save();
  if (evaluated_step_ != state_.step && interrupt.signal() == 0) evaluate(show_progress);
  return {.step = state_.step,
          .metrics = metrics_,
          .best_step = state_.best_step,
          .best_metrics = state_.best_metrics,
          .stopped_early = early_stop_due(),
          .signal = interrupt.signal()};
}

Trainer::Step Trainer::train_step() {
  optimizer_.zero_gradients();
  Step step;
  for (int64_t i = 0; i < config_.trainer.gradient_accumulation_steps; ++i) {
    const models::StepSeed seed{static_cast<uint64_t>(config_.trainer.seed), stream_.position()};
    const data::Batch batch = stream_.next();
    const TaskModel::Loss loss = model_.loss(batch, seed);
    step.tokens += models::num_tokens(model_.spec(), batch);
    if (loss.positions == 0) continue;
    const double value = loss.sum.item<double>();
    if (!std::isfinite(value)) fail_not_finite("loss", value);
    loss.sum.backward();
    step.loss_sum += value;
    step.positions += loss.positions;
  }
  step.learning_rate = learning_rate_at(config_.optimizer, state_.step, total_steps_);
  if (step.positions == 0) return step;
  // The gradient of the mean over all positions of the step, whatever batches they came in.
  double scale = 1 / static_cast<double>(step.positions);
  if (const double limit = config_.optimizer.max_grad_norm; limit > 0) {
    step.gradient_norm = optimizer_.gradient_norm(scale);
    if (!std::isfinite(step.gradient_norm)) fail_not_finite("gradient norm", step.gradient_norm);
    if (step.gradient_norm > limit) scale *= limit / step.gradient_norm;
  }
  optimizer_.step(step.learning_rate, scale);
  return step;
}

Trainer::Step Trainer::train_step_or_save() {
  try {
    return train_step();
  } catch (const std::exception& error) {
    if (!is_out_of_memory(error)) throw;
    // Weights and state are still those before the step.
    optimizer_.zero_gradients();
    if (saved_step_ != state_.step) save();
    throw_error(
        "out of memory in step {}; the state before it is saved in {}\n"
        "  make TrainerArgs.train_batch_size or DatasetArgs.max_history_seqlen smaller "
        "(gradient_accumulation_steps keeps the effective batch), then --resume",
        state_.step + 1, run_->path().string());
  }
}

void Trainer::fail_not_finite(const char* what, double value) {
  const auto checkpoint = newest_checkpoint(run_->path());
  throw_error(
      "{} is {} in step {} (epoch {}); {}\n  lower OptimizerArgs.learning_rate, set max_grad_norm, "
      "or add warmup_steps",
      what, std::abs(value), state_.step + 1, epoch_of(state_.batch) + 1,
      checkpoint ? fmt::format("the last good checkpoint is {}", checkpoint->string())
                 : "there is no checkpoint yet");
}

void Trainer::log_step(const Step& step, double tokens_per_second) {
  nlohmann::json line = {{"step", state_.step},
                         {"epoch", epoch_of(state_.batch - 1) + 1},
                         {"learning_rate", step.learning_rate},
                         {"seconds", state_.seconds},
                         {"tokens_per_second", tokens_per_second}};
  if (state_.loss_positions > 0) {
    line["loss"] = state_.loss_sum / static_cast<double>(state_.loss_positions);
  }
  if (config_.optimizer.max_grad_norm > 0) line["gradient_norm"] = step.gradient_norm;
  run_->append_metrics(line);
  state_.loss_sum = 0;
  state_.loss_positions = 0;
}

void Trainer::evaluate(bool show_progress) {
  evaluated_step_ = state_.step;
  if (evaluation_samples_.empty()) return;
  const config::TrainerArgs& trainer = config_.trainer;
  metrics_ = model_.evaluate(dataset_, evaluation_samples_,
                             {.batch_size = trainer.eval_batch_size,
                              .max_batches = trainer.max_eval_iters.value_or(-1),
                              .show_progress = show_progress});
  if (metrics_.empty()) return;
  const std::string& name = trainer.early_stopping_metric;
  const double value = watched(metrics_, name);
  const bool first = state_.best_step < 0;
  if (first || is_better(name.empty() ? metrics_[0].first : name, value,
                         watched(state_.best_metrics, name))) {
    state_.best_step = state_.step;
    state_.best_metrics = metrics_;
    state_.evaluations_since_best = 0;
  } else if (state_.best_step != state_.step) {
    ++state_.evaluations_since_best;
  }
  nlohmann::json line = {{"step", state_.step}, {"epoch", epoch_of(state_.batch - 1) + 1}};
  std::string text;
  for (const auto& [metric, result] : metrics_) {
    line["evaluation"][metric] = result;
    text += fmt::format("  {} {:.4f}", metric, result);
  }
  run_->append_metrics(line);
  log::info("train", "step {} of {}:{}", state_.step, total_steps_, text);
}

bool Trainer::evaluation_due(int64_t batches_before) const {
  const config::TrainerArgs& trainer = config_.trainer;
  if (trainer.eval_interval_epochs) {
    const int64_t interval = *trainer.eval_interval_epochs;
    return interval > 0 && epoch_of(state_.batch) / interval > epoch_of(batches_before) / interval;
  }
  return trainer.eval_interval > 0 && state_.step % trainer.eval_interval == 0;
}

bool Trainer::early_stop_due() const {
  const int64_t patience = config_.trainer.early_stopping_patience;
  return patience > 0 && state_.evaluations_since_best >= patience;
}

void Trainer::save() {
  for (const auto& parameter : model_.module().named_parameters()) {
    if (torch::isfinite(parameter.value().detach()).all().item<bool>()) continue;
    fail_not_finite(parameter.key().c_str(), std::numeric_limits<double>::quiet_NaN());
  }
  Checkpoint checkpoint;
  checkpoint.step = state_.step;
  collect_weights(model_.module(), checkpoint);
  checkpoint.optimizer = optimizer_.state();
  checkpoint.state = state_to_json(state_, model_.spec(), config_.trainer.seed);
  // Early stopping goes back so many evaluations: their checkpoints must still be there.
  const int64_t keep =
      std::max(config_.trainer.ckpt_keep, config_.trainer.early_stopping_patience + 1);
  save_checkpoint(run_->path(), checkpoint, keep);
  saved_step_ = state_.step;
}

}  // namespace seqfuse::training
