#include "serving/encoding/length_batches.h"

#include <algorithm>
#include <numeric>

namespace seqfuse::serving {

std::vector<std::vector<int64_t>> batches_by_length(std::span<const int64_t> lengths,
                                                    int64_t batch_tokens) {
  std::vector<int64_t> order(lengths.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  const auto length = [&](int64_t i) { return lengths[static_cast<size_t>(i)]; };
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return length(a) > length(b); });
  std::vector<std::vector<int64_t>> batches;
  int64_t tokens = 0;
  for (const int64_t i : order) {
    if (batches.empty() || tokens + length(i) > batch_tokens) {
      batches.emplace_back();
      tokens = 0;
    }
    batches.back().push_back(i);
    tokens += length(i);
  }
  return batches;
}

}  // namespace seqfuse::serving
