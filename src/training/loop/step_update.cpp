#include "training/loop/step_update.h"

#include <cmath>
#include <limits>
#include <utility>

#include "training/loop/not_finite.h"

namespace seqfuse::training {

StepUpdate::StepUpdate(models::hstu::TaskModel& model, const config::Config& config,
                       distributed::ProcessGroup& group)
    : args_(config.optimizer), optimizer_(model, config.optimizer, model.tables(), group) {
  const at::Device device = model.device();
  if (device.is_cuda()) {
    device_.emplace(optimizer_, args_, group, device,
                    config.network.dtype_str == config::ComputeType::float16);
  }
}

double StepUpdate::backward(const at::Tensor& loss_sum) {
  if (device_) {
    device_->backward(loss_sum);
    return 0;
  }
  loss_sum.backward();
  return loss_sum.item<double>();
}

void StepUpdate::update(int64_t number, Step& step) {
  if (device_) {
    start_on_gpu(number, step);
    update_on_gpu();
    return;
  }
  // The gradient of the mean over all positions of the step, however they are batched.
  double scale = 1 / static_cast<double>(step.positions);
  if (const double limit = args_.max_grad_norm; limit > 0) {
    step.gradient_norm = optimizer_.gradient_norm(scale);
    if (!std::isfinite(step.gradient_norm)) {
      throw NotFinite("gradient norm", step.gradient_norm, number);
    }
    if (step.gradient_norm > limit) scale *= limit / step.gradient_norm;
  }
  updating_ = true;
  optimizer_.step(step.learning_rate, scale);
  updating_ = false;
}

void StepUpdate::start_on_gpu(int64_t number, const Step& step) {
  device_->start(number, step.learning_rate, 1 / static_cast<double>(step.positions));
  positions_unread_ += step.positions;
}

void StepUpdate::update_on_gpu(bool recording) {
  device_->measure();
  updating_ = !recording;
  device_->update();
  updating_ = false;
}

void StepUpdate::read_losses(Step& step) {
  if (!device_) return;
  const DeviceStep::Reading reading = device_->read();
  if (reading.bad_step >= 0) {
    throw NotFinite(reading.bad_loss ? "loss" : "gradient norm",
                    std::numeric_limits<double>::quiet_NaN(), reading.bad_step);
  }
  step.gradient_norm = reading.gradient_norm;
  step.loss_sum = reading.loss_sum;
  step.losses_read = std::exchange(positions_unread_, 0);
}

void StepUpdate::save(TrainingState& state) const {
  state.optimizer_steps = optimizer_.steps();
  // Without loss scaling the state keeps the initial scale, for a run resumed in float16.
  const std::optional<LossScale> scale = device_ ? device_->loss_scale() : std::nullopt;
  if (scale) {
    state.loss_scale = scale->scale;
    state.loss_scale_steps = scale->steps;
  }
}

void StepUpdate::load(const TrainingState& state, const TensorMap& optimizer) {
  optimizer_.load_state(optimizer, state.optimizer_steps);
  if (device_) {
    device_->set_loss_scale({.scale = state.loss_scale, .steps = state.loss_scale_steps});
  }
  positions_unread_ = 0;
}

}  // namespace seqfuse::training
