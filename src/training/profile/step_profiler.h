// Records training steps with PyTorch's profiler: GPU kernels, or CPU operators.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <filesystem>
#include <vector>

#include "config/args.h"
#include "data/batch/batch.h"
#include "models/hstu/model_spec.h"
#include "training/profile/step_profile.h"

namespace seqfuse::training {

// Records steps [profile_step_start, profile_step_end) of training, counted from 0, or in a resumed
// run from the step it resumes at. Skips evaluations and checkpoints in between. A failure ends the
// recording with a warning, never the run.
class StepProfiler {
 public:
  // args and spec must outlive it. run: directory for profile.json and trace.json; empty in all
  // processes but the first, which record, so that all are equally slow, but do not write.
  StepProfiler(const config::TrainerArgs& args, const models::hstu::ModelSpec& spec,
               at::Device device, std::filesystem::path run);
  ~StepProfiler();  // discards an unfinished recording
  StepProfiler(const StepProfiler&) = delete;
  StepProfiler& operator=(const StepProfiler&) = delete;

  // step: number of steps done. Synchronises the GPU before the first recorded step.
  void before_step(int64_t step);
  void add_batch(const data::Batch& batch);
  // step: number of steps done. tokens: over all processes. pause: an evaluation or checkpoint
  // follows, and the GPU is idle. Finishes after the last recorded step.
  void after_step(int64_t step, int64_t tokens, bool pause);
  // Call when training ends: synchronises the GPU, then writes and logs the recording if not yet
  // done.
  void finish();

 private:
  enum class State { waiting, prepared, recording, done };
  template <class Action>
  void unless_it_fails(const Action& action);
  void start(int64_t step);
  void write();
  void drop();
  void wait_for_gpu() const;

  const config::TrainerArgs& args_;
  const models::hstu::ModelSpec& spec_;
  at::Device device_;
  std::filesystem::path run_;
  State state_ = State::waiting;
  StepProfile profile_;
  Span span_;                 // of the recording, on the profiler's clock
  std::vector<Span> pauses_;  // the last one is still running if paused_
  bool paused_ = false;
};

}  // namespace seqfuse::training
