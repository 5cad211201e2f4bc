#include "serving/decoding/sampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "base/random.h"

namespace seqfuse::serving {

void refuse_nan(int64_t id) {
  throw_error(
      "the logit of token {} is NaN: the dtype's range is too small for this model; choose another "
      "--dtype",
      id);
}

namespace {

// The first of the largest, in one pass: a step on a CPU has little time to spare.
int64_t best(std::span<const float> logits) {
  int64_t result = 0;
  for (size_t id = 0; id < logits.size(); ++id) {
    if (logits[id] <= logits[result]) continue;
    if (std::isnan(logits[id])) refuse_nan(static_cast<int64_t>(id));
    result = static_cast<int64_t>(id);
  }
  return result;
}

std::vector<double> penalised(std::span<const float> logits, double penalty,
                              const std::vector<int64_t>& before) {
  std::vector<double> values(logits.begin(), logits.end());
  if (penalty == 1) return values;
  for (const int64_t id : before) {  // each id once, from the original logit
    const double given = logits[id];
    values[id] = given > 0 ? given / penalty : given * penalty;
  }
  return values;
}

int64_t draw(const std::vector<double>& values, const SamplingOptions& options, uint64_t text,
             uint64_t step) {
  std::vector<int64_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  const auto better = [&](int64_t a, int64_t b) {
    return values[a] != values[b] ? values[a] > values[b] : a < b;
  };
  const auto size = static_cast<int64_t>(order.size());
  const int64_t kept = options.top_k > 0 ? std::min(options.top_k, size) : size;
  std::partial_sort(order.begin(), order.begin() + kept, order.end(), better);
  order.resize(kept);
  std::vector<double> sums;  // inclusive prefix sums of exp
  double sum = 0;
  for (const int64_t id : order) {
    sum += std::exp((values[id] - values[order.front()]) / options.temperature);
    sums.push_back(sum);
  }
  if (options.top_p < 1) {
    const auto reached = std::lower_bound(sums.begin(), sums.end(), options.top_p * sum);
    sum = reached == sums.end() ? sum : *reached;
  }
  const auto words = Philox{options.seed, text}(step);
  const uint64_t bits = ((uint64_t{words[0]} << 32) | words[1]) >> 11;
  const double point = static_cast<double>(bits) * 0x1p-53 * sum;
  const auto found = std::upper_bound(sums.begin(), sums.end(), point);
  return order[std::min<int64_t>(found - sums.begin(), kept - 1)];
}

}  // namespace

void SamplingOptions::check() const {
  SEQFUSE_CHECK_AS(UsageError, temperature >= 0 && std::isfinite(temperature),
                   "the temperature is {}; expected 0 (the best token) or more", temperature);
  SEQFUSE_CHECK_AS(UsageError, top_k >= 0, "top-k is {}; expected 0 (no limit) or more", top_k);
  SEQFUSE_CHECK_AS(UsageError, top_p > 0 && top_p <= 1, "top-p is {}; expected 0 < p <= 1", top_p);
  SEQFUSE_CHECK_AS(UsageError, repetition_penalty > 0 && std::isfinite(repetition_penalty),
                   "the repetition penalty is {}; expected a number above 0 (1: none)",
                   repetition_penalty);
}

int64_t next_token(std::span<const float> logits, const SamplingOptions& options,
                   const std::vector<int64_t>& before, uint64_t text, uint64_t step) {
  if (options.temperature == 0 && options.repetition_penalty == 1) return best(logits);
  for (size_t id = 0; id < logits.size(); ++id) {
    if (std::isnan(logits[id])) refuse_nan(static_cast<int64_t>(id));
  }
  const std::vector<double> values = penalised(logits, options.repetition_penalty, before);
  if (options.temperature == 0) {  // the first of equal logits
    return std::max_element(values.begin(), values.end()) - values.begin();
  }
  return draw(values, options, text, step);
}

}  // namespace seqfuse::serving
