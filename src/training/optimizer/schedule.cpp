#include "training/optimizer/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace seqfuse::training {

double learning_rate_at(const config::OptimizerArgs& args, int64_t step, int64_t total_steps) {
  const double peak = args.learning_rate;
  if (step < args.warmup_steps) {
    return peak * static_cast<double>(step + 1) / static_cast<double>(args.warmup_steps);
  }
  if (args.lr_schedule == config::LearningRateSchedule::constant) return peak;
  const auto done = static_cast<double>(step - args.warmup_steps);
  const auto all = static_cast<double>(std::max<int64_t>(total_steps - args.warmup_steps, 1));
  const double fraction = std::min(done / all, 1.0);
  return args.min_learning_rate +
         (peak - args.min_learning_rate) * 0.5 * (1 + std::cos(std::numbers::pi * fraction));
}

}  // namespace seqfuse::training
