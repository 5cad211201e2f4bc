#include "ops/torch/step_scalars.h"

#include "ops/kernels/step/step_scalars.h"
#include "ops/torch/cuda.h"

namespace seqfuse::ops {

StepScalars::StepScalars(at::Device device, double first_loss_scale) {
  const auto scalar = [&](at::ScalarType type, const at::Scalar& value) {
    return torch::full({}, value, torch::TensorOptions(device).dtype(type));
  };
  loss_sum = scalar(torch::kDouble, 0);
  step_loss = scalar(torch::kFloat, 0);
  norm = scalar(torch::kFloat, 0);
  bad_step = scalar(torch::kLong, -1);
  bad_loss = scalar(torch::kLong, 0);
  loss_scale = scalar(torch::kFloat, first_loss_scale);
  factor = scalar(torch::kFloat, 1);
  skip = scalar(torch::kFloat, 0);
  step = scalar(torch::kLong, 0);
  scale = scalar(torch::kFloat, 1);
  learning_rate = scalar(torch::kFloat, 0);
}

void start_step(const StepScalars& scalars, int64_t step, double scale, double learning_rate) {
  const DeviceGuard guard(scalars.step);
  const StepStartParams params{.step_to = scalars.step.mutable_data_ptr<int64_t>(),
                               .scale_to = scalars.scale.mutable_data_ptr<float>(),
                               .learning_rate_to = scalars.learning_rate.mutable_data_ptr<float>(),
                               .step = step,
                               .scale = static_cast<float>(scale),
                               .learning_rate = static_cast<float>(learning_rate)};
  SEQFUSE_RUN(scalars.step, step_start, params);
}

void finish_step(const StepScalars& scalars, double max_norm, bool scales_loss) {
  const DeviceGuard guard(scalars.norm);
  const StepScalarsParams params{.loss_sum = scalars.loss_sum.mutable_data_ptr<double>(),
                                 .step_loss = scalars.step_loss.mutable_data_ptr<float>(),
                                 .norm = scalars.norm.mutable_data_ptr<float>(),
                                 .bad_step = scalars.bad_step.mutable_data_ptr<int64_t>(),
                                 .bad_loss = scalars.bad_loss.mutable_data_ptr<int64_t>(),
                                 .loss_scale = scalars.loss_scale.const_data_ptr<float>(),
                                 .factor = scalars.factor.mutable_data_ptr<float>(),
                                 .skip = scalars.skip.mutable_data_ptr<float>(),
                                 .step = scalars.step.const_data_ptr<int64_t>(),
                                 .scale = scalars.scale.const_data_ptr<float>(),
                                 .max_norm = static_cast<float>(max_norm),
                                 .scales_loss = scales_loss};
  SEQFUSE_RUN(scalars.norm, step_scalars, params);
}

}  // namespace seqfuse::ops
