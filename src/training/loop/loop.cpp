#include "training/loop/loop.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/names.h"
#include "base/progress.h"
#include "training/loop/out_of_memory.h"
#include "training/loop/split_options.h"
#include "training/optimizer/schedule.h"

namespace seqfuse::training {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Also where an exception ends it.
template <class T>
struct EndOf {
  std::optional<T>& value;
  ~EndOf() { value.reset(); }
};

double watched(const Metrics& metrics, const std::string& name) {
  std::vector<std::string> names;
  for (const auto& [metric, value] : metrics) {
    if (metric == name) return value;
    names.push_back(metric);
  }
  throw_error<UsageError>("TrainerArgs.early_stopping_metric is '{}'{}: the metrics are {}", name,
                          did_you_mean(name, names), fmt::join(names, ", "));
}

}  // namespace

Trainer::Trainer(models::hstu::TaskModel& model, const data::Dataset& dataset,
                 const data::Split& split, const config::Config& config,
                 distributed::ProcessGroup& group, Evaluate evaluate)
    : model_(model),
      dataset_(dataset),
      config_(config),
      group_(group),
      evaluate_(std::move(evaluate)),
      evaluation_samples_(evaluation_samples(config.dataset, split)),
      stream_(dataset, split.train, config.trainer, config.dataset.shuffle, group.size(),
              batch_share(model.spec(), group, config.trainer.enable_balanced_shuffler)),
      optimizer_(model, config.optimizer, model.tables(), group),
      exchange_(group, model),
      table_tensors_(model.tables()) {
  state_.users_per_batch = stream_.users_per_batch();
  count_steps();
  model_.train();
  const at::Device device = model_.device();
  if (device.is_cuda()) {
    device_.emplace(optimizer_, config.optimizer, group_, device,
                    config.network.dtype_str == config::ComputeType::float16);
  }
}

TrainResult Trainer::run(RunDirectory& run, bool show_progress) {
  writer_.emplace(run, config_.trainer);
  logged_evaluation_ = run.truncate_metrics_after(state_.step);
  optimizer_.start_averages(/*saved=*/state_.step > 0);
  if (config_.trainer.profile) {
    profiler_.emplace(config_.trainer, model_.spec(), model_.device(),
                      group_.is_first() ? run.path() : std::filesystem::path());
  }
  const config::TrainerArgs& trainer = config_.trainer;
  const EndOf end_of_graphs{graphs_};
  start_graphs();
  const InterruptGuard interrupt(/*ignore_later=*/group_.several());
  interrupt_ = &interrupt;
  std::optional<Progress> progress;
  if (show_progress) progress.emplace("train", "steps", total_steps_ - state_.step);
  const int64_t first_step = state_.step;
  const int64_t last_batch =
      state_.batch + (total_steps_ - state_.step) * trainer.gradient_accumulation_steps;
  const int64_t epochs = epoch_of(std::max<int64_t>(last_batch - 1, 0)) + 1;
  int64_t tokens = 0;
  double seconds = 0, loss = std::numeric_limits<double>::quiet_NaN();
  evaluate_missed(show_progress);
  while (state_.step < total_steps_ && !early_stop_due() && stop_signal() == 0) {
    if (profiler_) {
      allow(fmt::format("profiler before step {}", state_.step + 1), kLongSeconds);
      profiler_->before_step(state_.step);
    }
    const auto start = Clock::now();
    // A hang is told from a step of more work by how long steps took so far.
    allow(fmt::format("step {}", state_.step + 1),
          longest_step_ > 0 ? 10 * longest_step_ : kLongSeconds);
    const int64_t batches_before = state_.batch;
    Step step = train_step();
    ++state_.step;
    state_.batch = stream_.position();
    state_.loss_positions += step.positions;
    const bool last = state_.step == total_steps_;
    const bool log_due =
        last || (trainer.log_interval > 0 && state_.step % trainer.log_interval == 0);
    const bool evaluate_due = last || evaluation_due(batches_before);
    const int64_t interval = trainer.ckpt_save_interval;
    const bool save_due =
        last || (interval > 0 ? state_.step % interval == 0 : interval < 0 && evaluate_due);
    if (!device_) {
      state_.loss_sum += step.loss_sum;
    } else if (log_due || evaluate_due || save_due) {
      read_device(step);
    }
    const double elapsed = seconds_since(start);
    longest_step_ = std::max(longest_step_, elapsed);
    state_.seconds += elapsed;
    seconds += elapsed;
    tokens += step.tokens;
    const double tokens_per_second = static_cast<double>(tokens) / seconds;

    if (progress) {
      if (step.losses_read > 0) loss = step.loss_sum / static_cast<double>(step.losses_read);
      progress->update(
          state_.step - first_step,
          fmt::format("epoch {} of {}, loss {:.4f}, {} tokens/s", epoch_of(batches_before) + 1,
                      epochs, loss, format_count(tokens_per_second)));
    }
    if (profiler_) {
      allow(fmt::format("profiler after step {}", state_.step), kLongSeconds);
      profiler_->after_step(state_.step, step.tokens, /*pause=*/evaluate_due || save_due);
      if (last) profiler_->finish();  // the evaluation that follows may be long
    }
    if (log_due) log_step(step, tokens_per_second);
    if (evaluate_due) evaluate(show_progress);
    if (save_due) save(last);
  }
  progress.reset();
  if (profiler_) profiler_->finish();
  profiler_.reset();
  if (saved_step_ != state_.step) save(/*last=*/true);
  if (evaluated_step_ != state_.step && stop_signal() == 0) evaluate(show_progress);
  const int signal = stop_signal();
  interrupt_ = nullptr;
  writer_->finish();
  return {.step = state_.step,
          .metrics = metrics_,
          .best_step = state_.best_step,
          .best_metrics = state_.best_metrics,
          .stopped_early = early_stop_due(),
          .signal = signal,
          .replayed_steps = graphs_ ? graphs_->replayed() : 0};
}

Trainer::Step Trainer::train_step() try {
  optimizer_.zero_gradients();
  if (graphs_) return graph_step();
  Step step;
  StepExchange::Totals totals;
  const int64_t batches = config_.trainer.gradient_accumulation_steps;
  for (int64_t i = 0; i < batches; ++i) {
    const models::StepSeed seed = seed_of_next_batch();
    const data::Batch batch = next_batch();
    if (i + 1 == batches) exchange_.start();
    if (batch_users_ == 0) {  // an epoch's end with fewer users than processes
      embeddings::fetch_nothing(model_.tables());
      continue;
    }
    const models::hstu::TaskModel::Loss loss = model_.loss(batch, seed);
    totals.tokens += batch_tokens_;
    if (loss.positions == 0) continue;
    totals.positions += loss.positions;
    if (device_) {
      device_->backward(loss.sum);
      continue;
    }
    loss.sum.backward();
    totals.loss_sum += loss.sum.item<double>();
  }
  totals.signal = interrupt_->signal();
  totals = exchange_.finish(totals);
  signal_ = totals.signal;
  step.positions = totals.positions;
  step.tokens = totals.tokens;
  if (!device_) {
    // Of all processes, so that all stop at the same step.
    if (!std::isfinite(totals.loss_sum)) fail_not_finite("loss", totals.loss_sum, state_.step + 1);
    step.loss_sum = totals.loss_sum;
    step.losses_read = step.positions;
  }
  step.learning_rate = learning_rate_at(config_.optimizer, state_.step, total_steps_);
  if (step.positions > 0) update(step);
  return step;
} catch (const std::exception& error) {
  stop_saved(error,
             fmt::format("step {}", state_.step + 1) +
                 (batch_users_ == 0 ? ""
                                    : fmt::format(" (batch of {} users, {} tokens)", batch_users_,
                                                  batch_tokens_)),
             how_to_make_steps_smaller(config_, model_.spec().task, model_.device()));
}

models::StepSeed Trainer::seed_of_next_batch() const {
  return {static_cast<uint64_t>(config_.trainer.seed), stream_.position(), group_.rank()};
}

data::Batch Trainer::next_batch() {
  batch_users_ = 0;
  data::Batch batch = stream_.next();
  batch_users_ = batch.batch_size();
  batch_tokens_ = models::hstu::num_tokens(model_.spec(), batch);
  if (profiler_) profiler_->add_batch(batch);
  return batch;
}

void Trainer::update(Step& step) {
  // The gradient of the mean over all positions of the step, whatever batches they came in.
  double scale = 1 / static_cast<double>(step.positions);
  if (device_) {
    device_->start(state_.step + 1, step.learning_rate, scale);
    update_on_device();
    return;
  }
  if (const double limit = config_.optimizer.max_grad_norm; limit > 0) {
    step.gradient_norm = optimizer_.gradient_norm(scale);
    if (!std::isfinite(step.gradient_norm)) {
      fail_not_finite("gradient norm", step.gradient_norm, state_.step + 1);
    }
    if (step.gradient_norm > limit) scale *= limit / step.gradient_norm;
  }
  updating_ = true;
  optimizer_.step(step.learning_rate, scale);
  updating_ = false;
}

void Trainer::update_on_device(bool recording) {
  device_->measure();
  updating_ = !recording;
  device_->update();
  updating_ = false;
}

void Trainer::read_device(Step& step) {
  const DeviceStep::Reading reading = device_->read();
  if (reading.bad_step >= 0) {
    fail_not_finite(reading.bad_loss ? "loss" : "gradient norm",
                    std::numeric_limits<double>::quiet_NaN(), reading.bad_step);
  }
  step.gradient_norm = reading.gradient_norm;
  step.loss_sum = reading.loss_sum;
  step.losses_read = state_.loss_positions - loss_positions_read_;
  state_.loss_sum += reading.loss_sum;
  loss_positions_read_ = state_.loss_positions;
}

void Trainer::log_step(const Step& step, double tokens_per_second) {
  nlohmann::json line = {{"step", state_.step},
                         {"epoch", epoch()},
                         {"learning_rate", step.learning_rate},
                         {"seconds", state_.seconds},
                         {"tokens_per_second", tokens_per_second}};
  if (state_.loss_positions > 0) {
    line["loss"] = state_.loss_sum / static_cast<double>(state_.loss_positions);
  }
  if (config_.optimizer.max_grad_norm > 0) line["gradient_norm"] = step.gradient_norm;
  writer_->append_metrics(line);
  state_.loss_sum = 0;
  state_.loss_positions = loss_positions_read_ = 0;
}

void Trainer::evaluate(bool show_progress) try {
  evaluated_step_ = state_.step;
  allow(fmt::format("evaluation after step {}", state_.step), kLongSeconds);
  if (evaluation_samples_.empty()) return;
  const config::TrainerArgs& trainer = config_.trainer;
  const Optimizer::Averages averages(optimizer_);
  const EvaluationOptions options{.batch_size = trainer.eval_batch_size,
                                  .max_batches = trainer.max_eval_iters.value_or(-1),
                                  .show_progress = show_progress,
                                  // Several processes would have to agree on it.
                                  .stop = [&] { return !group_.several() && stop_signal() != 0; },
                                  .group = &group_};
  metrics_ = evaluate_(model_, dataset_, evaluation_samples_, options);
  if (metrics_.empty()) return;
  if (model_.spec().task == models::hstu::Task::retrieval && !target_counts_) {
    const auto evaluated =
        std::span(evaluation_samples_)
            .first(static_cast<size_t>(num_evaluated(evaluation_samples_, options)));
    target_counts_ = count_targets(dataset_, evaluated);
    log::info("train", "{}", target_counts_->text(model_.spec().retrieval.filter_seen));
  }
  const std::string name =
      trainer.early_stopping_metric.empty() ? metrics_[0].first : trainer.early_stopping_metric;
  const double value = watched(metrics_, name);
  if (std::isnan(value)) {
    // No evaluation to compare with, and no lack of improvement.
    if (trainer.early_stopping_patience > 0) {
      log::warning("train", "{} is undefined: this evaluation does not count for early stopping",
                   name);
    }
  } else if (is_better(name, value, report::value_of(state_.best_metrics, name))) {
    state_.watched = name;
    state_.best_step = state_.step;
    state_.best_metrics = metrics_;
    state_.evaluations_since_best = 0;
  } else if (state_.best_step != state_.step) {
    ++state_.evaluations_since_best;
  }
  nlohmann::json line = {{"step", state_.step}, {"epoch", epoch()}};
  std::string text;
  for (const auto& [metric, result] : metrics_) {
    line["evaluation"][metric] = result;
    text += fmt::format("  {} {:.4f}", metric, result);
  }
  if (target_counts_) {
    line["targets"] = target_counts_->targets;
    line["seen_targets"] = target_counts_->seen;
  }
  if (logged_evaluation_ != state_.step) writer_->append_metrics(line);
  log::info("train", "step {} of {}:{}", state_.step, total_steps_, text);
} catch (const std::exception& error) {
  stop_saved(error, fmt::format("the evaluation after step {}", state_.step),
             how_to_make_evaluations_smaller(config_.trainer));
}

// One that was due when the run stopped, as a run that never stopped would have it.
void Trainer::evaluate_missed(bool show_progress) {
  if (group_.several() || state_.step == 0 || state_.step == total_steps_ ||
      logged_evaluation_ == state_.step) {
    return;
  }
  if (evaluation_due(state_.batch - config_.trainer.gradient_accumulation_steps)) {
    evaluate(show_progress);
  }
}

bool Trainer::evaluation_due(int64_t batches_before) const {
  const config::TrainerArgs& trainer = config_.trainer;
  if (trainer.eval_interval_epochs) {
    const int64_t interval = *trainer.eval_interval_epochs;
    return interval > 0 && epoch_of(state_.batch) / interval > epoch_of(batches_before) / interval;
  }
  return trainer.eval_interval > 0 && state_.step % trainer.eval_interval == 0;
}

// From where it stands: a run may be resumed with batches or steps of another size.
void Trainer::count_steps() {
  const config::TrainerArgs& trainer = config_.trainer;
  total_steps_ = std::numeric_limits<int64_t>::max();
  if (trainer.num_epochs || !trainer.max_train_iters) {
    const int64_t batches = trainer.num_epochs.value_or(1) * stream_.batches_per_epoch();
    // A last step may hold fewer batches than the others.
    const int64_t per_step = trainer.gradient_accumulation_steps;
    total_steps_ =
        state_.step + (std::max<int64_t>(batches - state_.batch, 0) + per_step - 1) / per_step;
  }
  total_steps_ = std::min(total_steps_, trainer.max_train_iters.value_or(total_steps_));
}

bool Trainer::early_stop_due() const {
  const int64_t patience = config_.trainer.early_stopping_patience;
  return patience > 0 && state_.evaluations_since_best >= patience;
}

int64_t Trainer::epoch() const {
  return state_.batch > 0 ? epoch_of(state_.batch - 1) + 1 : 0;
}

int Trainer::stop_signal() const {
  return group_.several() ? signal_ : interrupt_->signal();
}

void Trainer::allow(const std::string& what, double seconds) {
  group_.begin(what, std::max(seconds, config_.trainer.rank_timeout_seconds));
}

}  // namespace seqfuse::training
