// Training steps on a GPU: losses, gradient clipping, loss scaling and updates, none of which the
// host waits for.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <string>

#include "config/args.h"
#include "distributed/process_group.h"
#include "ops/torch/step_scalars.h"
#include "training/loop/training_state.h"
#include "training/optimizer/optimizer.h"

namespace seqfuse::training {

class DeviceStep {
 public:
  // scale_loss: for float16, whose gradients would vanish. optimizer and group must outlive
  // it.
  DeviceStep(Optimizer& optimizer, const config::OptimizerArgs& args,
             distributed::ProcessGroup& group, at::Device device, bool scale_loss);

  // Backward pass of the sum of a batch's losses.
  void backward(const at::Tensor& loss_sum);

  // What the step that ends with update() is: its number, its learning rate, and what its
  // gradients are multiplied by.
  void start(int64_t step, double learning_rate, double scale);
  // First the norm of the gradients, which may run out of memory (sparse ones are summed up for it)
  // with the weights still whole. Gradients are those of all processes already; losses are summed
  // over them here.
  void measure();
  // Then: updates with the gradients times the scale, clipped. A gradient that is not finite
  // updates nothing; with loss scaling it makes the scale smaller, without it it is an error that
  // read() tells.
  void update();

  struct Reading {
    double loss_sum = 0;       // of the losses since the last reading
    double gradient_norm = 0;  // of the last step
    int64_t bad_step = -1;     // the first step whose loss or gradient was not finite
    bool bad_loss = false;     // it was the loss
  };
  Reading read();  // waits for the GPU

  // The loss scale goes into checkpoints. Waits for the GPU.
  void save(TrainingState& state) const;
  void load(const TrainingState& state);

 private:
  Optimizer& optimizer_;
  distributed::ProcessGroup& group_;
  double max_norm_;
  bool scale_loss_;
  ops::StepScalars scalars_;
  at::Tensor growth_tracker_;  // int32 scalar: steps since the loss scale changed
};

}  // namespace seqfuse::training
