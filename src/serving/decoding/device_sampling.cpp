#include "serving/decoding/device_sampling.h"

#include <algorithm>

#include "ops/torch/decode/decode_step.h"

namespace seqfuse::serving {
using at::Tensor;

DeviceSampling::DeviceSampling(const SamplingOptions& options, const std::vector<uint64_t>& texts,
                               const std::vector<std::vector<int64_t>>& prompts, uint64_t drawn,
                               int64_t vocabulary, at::Device device)
    : options_(options) {
  if (is_greedy()) return;
  const auto rows = static_cast<int64_t>(texts.size());
  const std::vector<int64_t> numbers(texts.begin(), texts.end());
  const auto integers = at::TensorOptions(device).dtype(at::kLong);
  texts_ = at::tensor(numbers, at::kLong).to(device);
  counts_ = at::full({rows}, static_cast<int64_t>(drawn), integers);
  points_ = at::zeros({rows}, integers.dtype(at::kDouble));
  if (options.repetition_penalty == 1) return;
  Tensor seen = at::zeros({rows, vocabulary}, at::kBool);
  for (int64_t row = 0; row < rows; ++row) {
    for (const int64_t id : prompts[row]) seen[row].data_ptr<bool>()[id] = true;
  }
  seen_ = seen.to(device);
}

void DeviceSampling::pick(const Tensor& logits, const Tensor& active, const Tensor& ids) {
  Tensor values = logits.to(at::kFloat);
  if (seen_.defined()) {
    const double penalty = options_.repetition_penalty;
    seen_.scatter_(1, ids.clamp_min(0).unsqueeze(1), true);
    values = values.to(at::kDouble);
    values = at::where(seen_, at::where(values > 0, values / penalty, values * penalty), values);
  }
  // A stable sort: of equal logits the lower id comes first, and NaN comes before all.
  const auto [sorted, order] = at::sort(values, /*stable=*/true, /*dim=*/1, /*descending=*/true);
  const int64_t all = logits.size(1);
  const int64_t kept = options_.top_k > 0 ? std::min(options_.top_k, all) : all;
  const Tensor best = sorted.narrow(1, 0, 1).to(at::kDouble);
  Tensor picked = order.narrow(1, 0, 1);
  if (options_.temperature > 0) {
    const Tensor scaled = (sorted.narrow(1, 0, kept).to(at::kDouble) - best) / options_.temperature;
    const Tensor sums = scaled.exp().cumsum(1);
    Tensor sum = sums.narrow(1, kept - 1, 1);
    if (options_.top_p < 1) {
      const Tensor reached = at::searchsorted(sums, options_.top_p * sum).clamp_max(kept - 1);
      sum = sums.gather(1, reached);
    }
    ops::draw_points(texts_, counts_, options_.seed, points_);
    const Tensor found =
        at::searchsorted(sums, points_.unsqueeze(1) * sum, /*out_int32=*/false, /*right=*/true);
    picked = order.gather(1, found.clamp_max(kept - 1));
  }
  // Token n becomes ops::marked_nan(n) = -1 - n.
  const Tensor first = order.narrow(1, 0, 1);
  ids.copy_(at::where(best.isnan(), -1 - first, picked).squeeze(1));
  counts_.add_(active);
}

}  // namespace seqfuse::serving
