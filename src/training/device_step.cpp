#include "training/device_step.h"

namespace seqfuse::training {
namespace {

constexpr double kFirstLossScale = 65536;
constexpr int64_t kGrowthInterval =
    2000;  // steps without overflow after which the loss scale doubles

}  // namespace

DeviceStep::DeviceStep(Optimizer& optimizer, const config::OptimizerArgs& args,
                       distributed::ProcessGroup& group, at::Device device, bool scale_loss)
    : optimizer_(optimizer), group_(group), max_norm_(args.max_grad_norm), scale_loss_(scale_loss) {
  const auto on_device = at::TensorOptions(device);
  loss_sum_ = torch::zeros({}, on_device.dtype(torch::kDouble));
  norm_ = torch::zeros({}, on_device.dtype(torch::kFloat));
  step_loss_ = torch::zeros({}, on_device.dtype(torch::kFloat));
  bad_step_ = torch::full({}, -1, on_device.dtype(torch::kLong));
  bad_loss_ = torch::zeros({}, on_device.dtype(torch::kLong));
  loss_scale_ = torch::full({}, scale_loss ? kFirstLossScale : 1, on_device.dtype(torch::kFloat));
  growth_tracker_ = torch::zeros({}, on_device.dtype(torch::kInt));
}

void DeviceStep::backward(const at::Tensor& loss_sum) {
  (scale_loss_ ? loss_sum * loss_scale_ : loss_sum).backward();
  const torch::NoGradGuard no_grad;
  step_loss_.add_(loss_sum);
}

void DeviceStep::measure() {
  const torch::NoGradGuard no_grad;
  group_.all_reduce(step_loss_, "all-reduce of losses")();
  norm_ = optimizer_.gradient_norm_on_device();
}

void DeviceStep::update(int64_t step, double learning_rate, double scale) {
  const torch::NoGradGuard no_grad;
  at::Tensor factor = scale / loss_scale_;
  norm_ = norm_ * factor;
  const at::Tensor finite = norm_.isfinite();
  if (max_norm_ > 0) factor = factor * (max_norm_ / norm_).clamp_max(1);
  const at::Tensor skip = finite.logical_not().to(torch::kFloat);
  optimizer_.step_on_device(learning_rate, factor, skip);

  const at::Tensor bad_loss = step_loss_.isfinite().logical_not();
  const at::Tensor bad = scale_loss_ ? bad_loss : bad_loss.logical_or(finite.logical_not());
  const at::Tensor first = bad.logical_and(bad_step_.lt(0));
  bad_loss_ = at::where(first, bad_loss.to(torch::kLong), bad_loss_);
  bad_step_ = at::where(first, step, bad_step_);
  loss_sum_.add_(step_loss_);
  step_loss_.zero_();
  if (scale_loss_) {
    at::_amp_update_scale_(loss_scale_, growth_tracker_, skip, /*scale_growth_factor=*/2,
                           /*scale_backoff_factor=*/0.5, kGrowthInterval);
  }
}

DeviceStep::Reading DeviceStep::read() {
  const torch::NoGradGuard no_grad;
  const at::Tensor values = at::stack({loss_sum_, norm_.to(torch::kDouble),
                                       bad_step_.to(torch::kDouble), bad_loss_.to(torch::kDouble)})
                                .cpu();
  loss_sum_.zero_();
  const double* value = values.const_data_ptr<double>();
  return {.loss_sum = value[0],
          .gradient_norm = value[1],
          .bad_step = static_cast<int64_t>(value[2]),
          .bad_loss = value[3] != 0};
}

void DeviceStep::save(TrainingState& state) const {
  state.loss_scale = loss_scale_.item<float>();
  state.loss_scale_steps = growth_tracker_.item<int32_t>();
}

void DeviceStep::load(const TrainingState& state) {
  if (!scale_loss_) return;
  loss_scale_.fill_(state.loss_scale);
  growth_tracker_.fill_(state.loss_scale_steps);
}

}  // namespace seqfuse::training
