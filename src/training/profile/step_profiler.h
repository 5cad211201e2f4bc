// Records training steps with PyTorch's profiler: the GPU's kernels, or operators of the CPU.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <filesystem>
#include <vector>

#include "config/args.h"
#include "data/batch/batch.h"
#include "models/hstu/model.h"
#include "training/profile/step_profile.h"

namespace seqfuse::training {

// Steps [profile_step_start, profile_step_end) of training, counted from 0, resumed runs from the
// step they resume at. Evaluations and checkpoints between them are left out. A failure is a
// warning and ends the recording, never the run.
class StepProfiler {
 public:
  // args and spec must outlive it. run: the directory for profile.json and trace.json; empty: of
  // several processes, one that records, so that all are slowed down alike, but does not write.
  StepProfiler(const config::TrainerArgs& args, const models::ModelSpec& spec, at::Device device,
               std::filesystem::path run);
  ~StepProfiler();  // drops what is not finished
  StepProfiler(const StepProfiler&) = delete;
  StepProfiler& operator=(const StepProfiler&) = delete;

  // step: that training has done before. Waits for the GPU before the first.
  void before_step(int64_t step);
  void add_batch(const data::Batch& batch);
  // step: that training has done. tokens: of all processes. pause: something that is no step
  // follows, and the GPU has been waited for. Finishes after the last step.
  void after_step(int64_t step, int64_t tokens, bool pause);
  // Training ends. Waits for the GPU, writes and says what was recorded, if it has not.
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
  const models::ModelSpec& spec_;
  at::Device device_;
  std::filesystem::path run_;
  State state_ = State::waiting;
  StepProfile profile_;
  Span span_;                 // of the recording, by the profiler's clock
  std::vector<Span> pauses_;  // the last one is under way if paused_
  bool paused_ = false;
};

}  // namespace seqfuse::training
