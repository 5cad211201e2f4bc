#include "training/loop/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <optional>
#include <utility>

#include "training/loop/batch_share.h"
#include "training/loop/checkpoint_saver.h"
#include "training/loop/early_stopping.h"
#include "training/loop/memory_advice.h"
#include "training/loop/not_finite.h"
#include "training/loop/run_faults.h"
#include "training/loop/run_recorder.h"
#include "training/loop/split_options.h"
#include "training/loop/stop_signal.h"
#include "training/loop/time_limit.h"
#include "training/profile/step_profiler.h"

namespace seqfuse::training {

using Clock = std::chrono::steady_clock;

Trainer::Trainer(models::hstu::TaskModel& model, const data::Dataset& dataset,
                 const data::Split& split, const config::Config& config,
                 distributed::ProcessGroup& group, Evaluate evaluate)
    : model_(model),
      config_(config),
      group_(group),
      stream_(dataset, split.train, config.trainer, config.dataset.shuffle, group.size(),
              batch_share(model.spec(), group, config.trainer.enable_balanced_shuffler)),
      schedule_(config.trainer, stream_.batches_per_epoch()),
      update_(model, config, group),
      steps_(model, config, stream_, update_, group),
      evaluator_(model, dataset, evaluation_samples(config.dataset, split), std::move(evaluate)),
      start_(model, config.trainer, update_, stream_, schedule_, state_, group) {
  state_.users_per_batch = stream_.users_per_batch();
  schedule_.count_steps(state_);
  model_.train();
}

struct Trainer::Running {
  Running(Trainer& trainer, RunDirectory& directory, bool show_progress_in)
      : show_progress(show_progress_in),
        steps(trainer.steps_),
        writer(directory, trainer.config_.trainer),
        recorder(directory, writer, trainer.config_, trainer.schedule_, trainer.state_,
                 show_progress),
        saver(trainer.model_, trainer.update_, trainer.config_.trainer, trainer.group_, writer,
              trainer.start_.saved_step()),
        faults(trainer.state_, steps, trainer.update_, saver, trainer.group_, writer,
               trainer.model_.device()),
        stop(trainer.group_) {
    trainer.start_averages();
    if (trainer.config_.trainer.profile) {
      profiler.emplace(trainer.config_.trainer, trainer.model_.spec(), trainer.model_.device(),
                       trainer.group_.is_first() ? directory.path() : std::filesystem::path());
    }
    steps.start_graphs();
  }
  ~Running() { steps.stop_graphs(); }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  const bool show_progress;
  StepRunner& steps;
  RunWriter writer;
  RunRecorder recorder;
  CheckpointSaver saver;
  RunFaults faults;
  StopSignal stop;
  std::optional<StepProfiler> profiler;  // with TrainerArgs.profile
  int64_t evaluated_step = -1;
  double longest_step = 0;  // seconds
};

void Trainer::start_averages() {
  if (std::exchange(averages_started_, true)) return;
  update_.optimizer().start_averages(/*saved=*/state_.step > 0);
}

void Trainer::save_start(RunDirectory& directory) {
  start_averages();
  RunWriter writer(directory, config_.trainer);
  CheckpointSaver saver(model_, update_, config_.trainer, group_, writer, start_.saved_step());
  saver.save(state_, /*last=*/true);
}

TrainResult Trainer::run(RunDirectory& directory, bool show_progress) {
  Running run(*this, directory, show_progress);
  try {
    run_all(run);
  } catch (const NotFinite& error) {
    run.faults.stop(error, schedule_.epoch_of_batch(state_.batch));
  }
  const int signal = run.stop.signal();
  run.writer.finish();
  return {.step = state_.step,
          .metrics = evaluator_.metrics(),
          .best_step = state_.best_step,
          .best_metrics = state_.best_metrics,
          .stopped_early = early_stop_due(config_.trainer, state_),
          .signal = signal,
          .replayed_steps = steps_.replayed_steps()};
}

void Trainer::run_all(Running& run) {
  evaluate_missed(run);
  while (state_.step < schedule_.total_steps() && !early_stop_due(config_.trainer, state_) &&
         run.stop.signal() == 0) {
    run_step(run);
  }
  run.recorder.end_progress();
  if (run.profiler) run.profiler->finish();
  run.profiler.reset();
  if (run.saver.saved_step() != state_.step) run.saver.save(state_, /*last=*/true);
  if (run.evaluated_step != state_.step && run.stop.signal() == 0) evaluate(run);
}

void Trainer::run_step(Running& run) {
  if (run.profiler) {
    allow(group_, config_.trainer, fmt::format("profiler before step {}", state_.step + 1));
    run.profiler->before_step(state_.step);
  }
  const auto start = Clock::now();
  const int64_t first_batch = state_.batch;
  Step step = train_step(run);
  ++state_.step;
  state_.batch = stream_.position();
  state_.loss_positions += step.positions;
  const RunSchedule::Due due = schedule_.due(state_, first_batch);
  if (due.any()) update_.read_losses(step);
  state_.loss_sum += step.loss_sum;
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  run.longest_step = std::max(run.longest_step, seconds);
  state_.seconds += seconds;
  run.recorder.add_step(state_, step, seconds, first_batch);

  if (run.profiler) {
    allow(group_, config_.trainer, fmt::format("profiler after step {}", state_.step));
    run.profiler->after_step(state_.step, step.tokens, /*pause=*/due.evaluate || due.save);
    if (due.last) run.profiler->finish();  // the evaluation that follows may be long
  }
  if (due.log) run.recorder.write_step(state_, step);
  if (due.evaluate) evaluate(run);
  if (due.save) run.saver.save(state_, due.last);
}

Step Trainer::train_step(Running& run) try {
  // A hang is recognised by comparison with the longest step so far.
  allow(group_, config_.trainer, fmt::format("step {}", state_.step + 1),
        run.longest_step > 0 ? 10 * run.longest_step : kLongSeconds);
  const Step step = steps_.run(
      state_.step, schedule_.total_steps(), [&] { return run.stop.own(); },
      [&](const data::Batch& batch) {
        if (run.profiler) run.profiler->add_batch(batch);
      });
  run.stop.set_agreed(step.signal);
  return step;
} catch (const std::exception& error) {
  run.faults.stop(error, fmt::format("step {}{}", state_.step + 1, steps_.batch_text()),
                  how_to_make_steps_smaller(config_, model_.spec().task, model_.device()));
}

void Trainer::evaluate(Running& run) try {
  run.evaluated_step = state_.step;
  allow(group_, config_.trainer, fmt::format("evaluation after step {}", state_.step));
  const Optimizer::Averages averages(update_.optimizer());
  const Metrics& metrics = evaluator_.run(config_.trainer, group_, run.show_progress,
                                          [&] { return run.stop.signal() != 0; });
  if (metrics.empty()) return;
  compare_with_best(config_.trainer, metrics, state_);
  run.recorder.write_evaluation(state_, metrics, evaluator_.target_counts());
} catch (const std::exception& error) {
  run.faults.stop(error, fmt::format("the evaluation after step {}", state_.step),
                  how_to_make_evaluations_smaller(config_.trainer));
}

// Runs an evaluation that was due when the run stopped, as an uninterrupted run would have.
void Trainer::evaluate_missed(Running& run) {
  if (group_.several() || run.recorder.has_evaluation(state_)) return;
  if (schedule_.evaluation_was_due(state_)) evaluate(run);
}

}  // namespace seqfuse::training
