#include "serving/decoding/perplexity.h"

#include <algorithm>

#include "base/error.h"

namespace seqfuse::serving {
using at::Tensor;

std::vector<double> token_losses(Session& session, std::span<const int64_t> ids,
                                 int64_t tokens_per_pass,
                                 const std::function<bool(int64_t)>& progress) {
  SEQFUSE_CHECK(session.rows() == 1, "losses of one text; the session has {} rows", session.rows());
  SEQFUSE_CHECK_AS(DataError, ids.size() >= 2,
                   "the text has {} tokens; at least 2 are needed, as the first is not predicted",
                   ids.size());
  const auto count = static_cast<int64_t>(ids.size()) - 1;
  std::vector<double> losses;
  for (int64_t begin = 0; begin < count; begin += tokens_per_pass) {
    if (progress && !progress(begin)) break;
    const int64_t tokens = std::min(tokens_per_pass, count - begin);
    const Tensor logits = tokens == 1 ? session.step({ids[begin]}, {true})
                                      : session.extend(0, ids.subspan(begin, tokens), true);
    const auto next = ids.subspan(begin + 1, tokens);
    const Tensor targets = at::tensor(at::ArrayRef<int64_t>(next.data(), next.size()), at::kLong);
    const Tensor loss =
        at::nll_loss(at::log_softmax(logits.to(at::TensorOptions(at::kCPU).dtype(at::kDouble)), 1),
                     targets, {}, at::Reduction::None);
    const double* values = loss.const_data_ptr<double>();
    losses.insert(losses.end(), values, values + tokens);
  }
  return losses;
}

}  // namespace seqfuse::serving
