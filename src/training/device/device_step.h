// Training steps on a GPU: losses, gradient clipping, loss scaling and updates without
// synchronising.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "config/args.h"
#include "distributed/process_group.h"
#include "ops/torch/step_scalars.h"
#include "training/optimizer/optimizer.h"

namespace seqfuse::training {

struct LossScale {
  double scale = 65536;
  int64_t steps = 0;  // since it last changed
};

class DeviceStep {
 public:
  // scale_loss: for float16, whose gradients would underflow. optimizer and group must outlive
  // this.
  DeviceStep(Optimizer& optimizer, const config::OptimizerArgs& args,
             distributed::ProcessGroup& group, at::Device device, bool scale_loss);

  // Backward pass of the sum of a batch's losses.
  void backward(const at::Tensor& loss_sum);

  // Sets the number, learning rate and gradient scale of the step that ends with update().
  void start(int64_t step, double learning_rate, double scale);
  // Call first: computes the gradient norm. Summing sparse gradients may run out of memory; weights
  // are still unchanged then. Gradients are already summed over the processes; losses are summed
  // here.
  void measure();
  // Call second: updates with the scaled, clipped gradients. If a gradient is not finite, updates
  // nothing; the loss scale then shrinks or, without loss scaling, read() reports an error.
  void update();

  struct Reading {
    double loss_sum = 0;       // since the last reading
    double gradient_norm = 0;  // of the last step
    int64_t bad_step = -1;     // the first step whose loss or gradient was not finite
    bool bad_loss = false;     // whether it was the loss
  };
  Reading read();  // waits for the GPU

  // Nothing without loss scaling. Waits for the GPU.
  std::optional<LossScale> loss_scale() const;
  // Does nothing without loss scaling.
  void set_loss_scale(const LossScale& scale);

 private:
  Optimizer& optimizer_;
  distributed::ProcessGroup& group_;
  double max_norm_;
  bool scale_loss_;
  ops::StepScalars scalars_;
  at::Tensor growth_tracker_;  // int32 scalar: steps since the loss scale changed
};

}  // namespace seqfuse::training
