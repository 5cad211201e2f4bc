// The end of a training step: backward pass and update, on the CPU or on a GPU.
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
  // Positions in loss_sum; on a GPU, those of several steps or none.
  int64_t losses_read = 0;
  int signal = 0;  // SIGINT or SIGTERM was received by a process
};

class StepUpdate {
 public:
  // All references must outlive it.
  StepUpdate(models::hstu::TaskModel& model, const config::Config& config,
             distributed::ProcessGroup& group);

  Optimizer& optimizer() { return optimizer_; }
  // On a GPU, losses and norms are read only by read_losses(); the host waits for nothing else.
  bool on_gpu() const { return device_.has_value(); }

  // Adds a batch's gradients. Returns the loss on the CPU, 0 on a GPU.
  double backward(const at::Tensor& loss_sum);

  // Updates the weights with the gradients of all processes. number: of the step, from 1. Throws
  // NotFinite and leaves the weights unchanged.
  void update(int64_t number, Step& step);

  // update() on a GPU in two parts: the first writes per-step values to the device; the second can
  // be recorded as a CUDA graph. recording: what is enqueued runs later.
  void start_on_gpu(int64_t number, const Step& step);
  void update_on_gpu(bool recording = false);

  // On a GPU: fills step with the losses and norms since the last call. Throws NotFinite if one is
  // not finite.
  void read_losses(Step& step);

  // Whether weights may be partly changed: an update is in progress or has failed.
  bool is_updating() const { return updating_; }

  // The optimiser's part of a run's state.
  void save(TrainingState& state) const;
  void load(const TrainingState& state, const TensorMap& optimizer);

 private:
  const config::OptimizerArgs& args_;
  Optimizer optimizer_;
  std::optional<DeviceStep> device_;  // if the model is on a GPU
  int64_t positions_unread_ = 0;      // on a GPU: since the last read_losses()
  bool updating_ = false;
};

}  // namespace seqfuse::training
