// Cross entropy of one row of a table among others, by its definition, in float64.
#pragma once

#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

namespace seqfuse::oracle {

struct SoftmaxLoss {
  at::Tensor losses;           // [T]
  at::Tensor dhidden, dtable;  // gradients of sum_t dlosses_t losses_t
};

// rows(t): the ids whose logits compete at position t, the positive first.
template <class Rows>
SoftmaxLoss softmax_loss(const at::Tensor& hidden, const at::Tensor& table, double temperature,
                         const at::Tensor& dlosses, Rows&& rows) {
  const int64_t positions = hidden.size(0), dim = hidden.size(1);
  SoftmaxLoss result{at::empty({positions}, hidden.options()), at::zeros_like(hidden),
                     at::zeros_like(table)};
  const auto h = hidden.accessor<double, 2>(), e = table.accessor<double, 2>();
  const auto dloss = dlosses.accessor<double, 1>();
  auto dh = result.dhidden.accessor<double, 2>(), de = result.dtable.accessor<double, 2>();
  for (int64_t t = 0; t < positions; ++t) {
    const std::vector<int64_t> ids = rows(t);
    std::vector<double> logits;
    for (size_t k = 0; k < ids.size(); ++k) {
      double product = 0;
      for (int64_t j = 0; j < dim; ++j) product += h[t][j] * e[ids[k]][j];
      logits.push_back(k > 0 && ids[k] == ids[0] ? -5e4 : product / temperature);
    }
    const double highest = *std::max_element(logits.begin(), logits.end());
    double sum = 0;
    for (const double logit : logits) sum += std::exp(logit - highest);
    result.losses[t] = std::log(sum) + highest - logits[0];
    for (size_t k = 0; k < ids.size(); ++k) {
      const double p = std::exp(logits[k] - highest) / sum;
      const double dlogit = dloss[t] * (p - (k == 0 ? 1 : 0)) / temperature;
      for (int64_t j = 0; j < dim; ++j) {
        dh[t][j] += dlogit * e[ids[k]][j];
        de[ids[k]][j] += dlogit * h[t][j];
      }
    }
  }
  return result;
}

// negatives: int32 [T, K].
inline SoftmaxLoss sampled_softmax(const at::Tensor& hidden, const at::Tensor& table,
                                   const at::Tensor& targets, const at::Tensor& negatives,
                                   double temperature, const at::Tensor& dlosses) {
  return softmax_loss(hidden, table, temperature, dlosses, [&](int64_t t) {
    std::vector<int64_t> ids{targets[t].item<int64_t>()};
    for (int64_t k = 0; k < negatives.size(1); ++k) ids.push_back(negatives[t][k].item<int32_t>());
    return ids;
  });
}

// seen, offsets: position t excludes what its sequence lists up to t, except its target.
inline SoftmaxLoss full_softmax(const at::Tensor& hidden, const at::Tensor& table,
                                const at::Tensor& targets, const at::Tensor& catalogue,
                                double temperature, const at::Tensor& dlosses,
                                const at::Tensor& seen = {}, const at::Tensor& offsets = {}) {
  return softmax_loss(hidden, table, temperature, dlosses, [&](int64_t t) {
    const int64_t target = targets[t].item<int64_t>();
    std::set<int64_t> left_out{target};
    if (seen.defined()) {
      int64_t begin = 0;
      for (int64_t b = 0; b < offsets.numel(); ++b) {
        if (const int64_t offset = offsets[b].item<int64_t>(); offset <= t) begin = offset;
      }
      for (int64_t s = begin; s <= t; ++s) left_out.insert(seen[s].item<int64_t>());
    }
    std::vector<int64_t> ids{target};
    for (int64_t c = 0; c < catalogue.numel(); ++c) {
      const int64_t id = catalogue[c].item<int64_t>();
      if (!left_out.contains(id)) ids.push_back(id);
    }
    return ids;
  });
}

}  // namespace seqfuse::oracle
