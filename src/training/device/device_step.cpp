#include "training/device/device_step.h"

namespace seqfuse::training {
namespace {

// Steps without overflow after which the loss scale doubles.
constexpr int64_t kGrowthInterval = 2000;

}  // namespace

DeviceStep::DeviceStep(Optimizer& optimizer, const config::OptimizerArgs& args,
                       distributed::ProcessGroup& group, at::Device device, bool scale_loss)
    : optimizer_(optimizer),
      group_(group),
      max_norm_(args.max_grad_norm),
      scale_loss_(scale_loss),
      scalars_(device, scale_loss ? LossScale().scale : 1),
      growth_tracker_(torch::zeros({}, at::TensorOptions(device).dtype(torch::kInt))) {}

void DeviceStep::backward(const at::Tensor& loss_sum) {
  (scale_loss_ ? loss_sum * scalars_.loss_scale : loss_sum).backward();
  const torch::NoGradGuard no_grad;
  scalars_.step_loss.add_(loss_sum);
}

void DeviceStep::start(int64_t step, double learning_rate, double scale) {
  ops::start_step(scalars_, step, scale, learning_rate);
}

void DeviceStep::measure() {
  const torch::NoGradGuard no_grad;
  group_.all_reduce(scalars_.step_loss, "all-reduce of losses")();
  scalars_.norm.copy_(optimizer_.gradient_norm_on_device());
}

void DeviceStep::update() {
  const torch::NoGradGuard no_grad;
  ops::finish_step(scalars_, max_norm_, scale_loss_);
  optimizer_.step_on_device(scalars_.learning_rate, scalars_.factor, scalars_.skip);
  if (scale_loss_) {
    at::_amp_update_scale_(scalars_.loss_scale, growth_tracker_, scalars_.skip,
                           /*scale_growth_factor=*/2,
                           /*scale_backoff_factor=*/0.5, kGrowthInterval);
  }
}

DeviceStep::Reading DeviceStep::read() {
  const torch::NoGradGuard no_grad;
  const at::Tensor values =
      at::stack({scalars_.loss_sum, scalars_.norm.to(torch::kDouble),
                 scalars_.bad_step.to(torch::kDouble), scalars_.bad_loss.to(torch::kDouble)})
          .cpu();
  scalars_.loss_sum.zero_();
  const double* value = values.const_data_ptr<double>();
  return {.loss_sum = value[0],
          .gradient_norm = value[1],
          .bad_step = static_cast<int64_t>(value[2]),
          .bad_loss = value[3] != 0};
}

std::optional<LossScale> DeviceStep::loss_scale() const {
  if (!scale_loss_) return std::nullopt;
  return LossScale{.scale = scalars_.loss_scale.item<float>(),
                   .steps = growth_tracker_.item<int32_t>()};
}

void DeviceStep::set_loss_scale(const LossScale& scale) {
  if (!scale_loss_) return;
  scalars_.loss_scale.fill_(scale.scale);
  growth_tracker_.fill_(scale.steps);
}

}  // namespace seqfuse::training
