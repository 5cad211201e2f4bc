// Softmax attention under a dense mask with PyTorch's operators: in float64 the oracle, in other
// dtypes what plain PyTorch gives. Differentiable.
#pragma once

#include <torch/types.h>

#include <limits>
#include <tuple>

#include "masks/mask.h"

namespace seqfuse::oracle {

// bool [batch of the mask, 1, queries, keys], element by element from the mask's definition.
inline at::Tensor dense_mask(const masks::Mask& mask) {
  const std::vector<uint8_t> elements = mask.dense();
  at::Tensor dense = at::empty({mask.batch(), 1, mask.queries(), mask.keys()}, at::kBool);
  std::copy(elements.begin(), elements.end(), dense.data_ptr<bool>());
  return dense;
}

// Output and log-sum-exp. q [B, H, queries, d], k, v [B, G, keys, d]. Rows that see nothing: 0 and
// -infinity.
inline std::tuple<at::Tensor, at::Tensor> masked_attention(const at::Tensor& q, const at::Tensor& k,
                                                           const at::Tensor& v,
                                                           const at::Tensor& allowed,
                                                           double scale) {
  constexpr double kLowest = -std::numeric_limits<double>::infinity();
  const int64_t group = k.size(1) == 0 ? 1 : q.size(1) / k.size(1);
  const at::Tensor keys = k.repeat_interleave(group, 1), values = v.repeat_interleave(group, 1);
  const at::Tensor sees = allowed.any(-1, true);
  // Rows that see nothing get equal scores, so that no gradient is NaN; they are removed below.
  const at::Tensor scores =
      (at::matmul(q, keys.transpose(-2, -1)) * scale).masked_fill(~(allowed | ~sees), kLowest);
  const at::Tensor out = at::matmul(scores.softmax(-1), values).masked_fill(~sees, 0);
  return {out, scores.logsumexp({-1}).masked_fill(~sees.squeeze(-1), kLowest)};
}

}  // namespace seqfuse::oracle
