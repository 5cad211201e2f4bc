// The end of a training step: from losses to gradients to new weights, on the CPU or on a GPU.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <optional>

#include "config/roots.h"
#include "distributed/process_group.h"
#include "models/hstu/task_model.h"
#include "training/checkpoint/checkpoint.h"
#include "training/device/device_step.h"
#include "training/loop/training_state.h"
#include "training/optimizer/optimizer.h"

namespace seqfuse::training {

struct Step {
  double loss_sum = 0, gradient_norm = 0, learning_rate = 0;
  int64_t positions = 0, tokens = 0;
  // Positions in loss_sum, which on a GPU are those of several steps or none.
  int64_t losses_read = 0;
  int signal = 0;  // SIGINT or SIGTERM has come to one of the processes
};

class StepUpdate {
 public:
  // All references must outlive it. Throws UsageError on an unknown optimiser.
  StepUpdate(models::hstu::TaskModel& model, const config::Config& config,
             distributed::ProcessGroup& group);

  Optimizer& optimizer() { return optimizer_; }
  // Then losses and norms are read when read_losses() is called, and the host waits for nothing
  // else.
  bool on_gpu() const { return device_.has_value(); }

  // Adds a batch's gradients. Returns the loss on the CPU, 0 on a GPU.
  double backward(const at::Tensor& loss_sum);

  // Updates the weights with the gradients of all processes. number: of the step, from 1. Throws
  // NotFinite, with the weights as they were.
  void update(int64_t number, Step& step);

  // update() on a GPU in two parts: the first writes to the device what differs from step to step,
  // the second can be recorded as a CUDA graph. recording: what is enqueued happens later.
  void start_on_gpu(int64_t number, const Step& step);
  void update_on_gpu(bool recording = false);

  // On a GPU: fills step with what it has done since the last time. Throws NotFinite if a loss or a
  // gradient was not.
  void read_losses(Step& step);

  // Weights may be half changed: an update is under way, or has failed.
  bool is_updating() const { return updating_; }

  // The optimiser's part of a run's state.
  void save(TrainingState& state) const;
  void load(const TrainingState& state, const TensorMap& optimizer);

 private:
  const config::OptimizerArgs& args_;
  Optimizer optimizer_;
  std::optional<DeviceStep> device_;  // where the model is on a GPU
  int64_t positions_unread_ = 0;      // of a GPU: losses since read_losses()
  bool updating_ = false;
};

}  // namespace seqfuse::training
