#include "ops/kernels/softmax/sampled_softmax.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/parallel.h"
#include "ops/cpu/dispatch.h"
#include "ops/cpu/row_vectors.h"
#include "ops/cpu/softmax_exp.h"

namespace seqfuse::ops {
namespace cpu {
namespace {

constexpr double kCollisionLogit = -5e4;
constexpr int kUnroll = 4;  // registers of a row in flight together

// Calls body.operator()<N>(first) for each group of N <= kUnroll registers of a row; first: in
// elements.
template <class T, class Body>
inline void for_each_group(int64_t stride, Body&& body) {
  constexpr int64_t kGroup = kUnroll * kLanes<T>;
  int64_t d = 0;
  for (; d + kGroup <= stride; d += kGroup) body.template operator()<kUnroll>(d);
  switch ((stride - d) / kLanes<T>) {
    case 1:
      return body.template operator()<1>(d);
    case 2:
      return body.template operator()<2>(d);
    case 3:
      return body.template operator()<3>(d);
  }
}

// Computes one position at a time. Local arrays are padded to whole registers.
template <class T>
class PositionLoss {
 public:
  PositionLoss(const SampledSoftmaxParams& params, const PaddedRows<T>& table)
      : params_(params),
        table_(table),
        padded_negatives_(round_up_to_lanes<T>(params.num_negatives)),
        inverse_temperature_(static_cast<T>(1 / params.temperature)),
        hidden_(table.stride()),
        dhidden_(table.stride()),
        negatives_(padded_negatives_),
        logits_(padded_negatives_) {
    std::fill_n(hidden_.data(), table.stride(), T{0});
    std::fill_n(negatives_.data(), padded_negatives_, 0);
  }

  void compute(int64_t t) {
    const int64_t count = params_.num_negatives;
    const int64_t target = params_.targets[t];
    std::copy_n(params_.negatives + t * count, count, negatives_.data());
    std::copy_n(static_cast<const T*>(params_.hidden) + t * params_.dim, params_.dim,
                hidden_.data());

    const T positive = dot(table_.row(target)) * inverse_temperature_;
    for (int64_t k = 0; k < count; k += kLanes<T>) store(&logits_[k], dot_each(&negatives_[k]));
    for (int64_t k = 0; k < count; ++k) {
      logits_[k] = negatives_[k] == target ? static_cast<T>(kCollisionLogit)
                                           : logits_[k] * inverse_temperature_;
    }
    std::fill(logits_.data() + count, logits_.data() + padded_negatives_,
              -std::numeric_limits<T>::infinity());

    const T highest = std::max(positive, largest(logits_.data(), padded_negatives_));
    const T positive_exp = std::exp(positive - highest);
    for (int64_t k = 0; k < padded_negatives_; ++k) logits_[k] = exp_or_zero(logits_[k] - highest);
    const T negatives_exp = sum(logits_.data(), padded_negatives_);
    const T sum_exp = positive_exp + negatives_exp;
    static_cast<T*>(params_.losses)[t] = std::log(sum_exp) + (highest - positive);
    if (!params_.coefficients) return;

    T* coefficients = static_cast<T*>(params_.coefficients) + t * (1 + count);
    // Not p - 1, which cancels when p is near 1.
    coefficients[0] = -negatives_exp / sum_exp;
    const T scale = 1 / sum_exp;
    for (int64_t k = 0; k < count; ++k) coefficients[1 + k] = logits_[k] * scale;
    write_dhidden(t, coefficients);
  }

 private:
  T dot(const T* row) {
    Vector<T> sums{};
    for (int64_t d = 0; d < table_.stride(); d += kLanes<T>)
      sums += load(row + d) * load(&hidden_[d]);
    return sum<T>(sums);
  }

  // Dot products of the hidden state with kLanes rows, one per lane.
  Vector<T> dot_each(const int32_t* ids) {
    Vector<T> sums[kLanes<T>] = {};
    for_each_group<T>(table_.stride(), [&]<int N>(int64_t d) {
      Vector<T> h[N];
      for (int n = 0; n < N; ++n) h[n] = load(&hidden_[d + n * kLanes<T>]);
#pragma GCC unroll 16
      for (int i = 0; i < kLanes<T>; ++i) {
        const T* row = table_.row(ids[i]) + d;
#pragma GCC unroll 4
        for (int n = 0; n < N; ++n) sums[i] += load(row + n * kLanes<T>) * h[n];
      }
    });
    return sum_each<T>(sums);
  }

  void write_dhidden(int64_t t, const T* coefficients) {
    for_each_group<T>(table_.stride(), [&]<int N>(int64_t d) {
      Vector<T> sums[N] = {};
      const auto add = [&](T coefficient, const T* row) {
#pragma GCC unroll 4
        for (int n = 0; n < N; ++n) sums[n] += coefficient * load(row + d + n * kLanes<T>);
      };
      add(coefficients[0], table_.row(params_.targets[t]));
      for (int64_t k = 0; k < params_.num_negatives; ++k) {
        add(coefficients[1 + k], table_.row(negatives_[k]));
      }
      for (int n = 0; n < N; ++n)
        store(&dhidden_[d + n * kLanes<T>], sums[n] * inverse_temperature_);
    });
    std::copy_n(dhidden_.data(), params_.dim, static_cast<T*>(params_.dhidden) + t * params_.dim);
  }

  const SampledSoftmaxParams& params_;
  const PaddedRows<T>& table_;
  const int64_t padded_negatives_;
  const T inverse_temperature_;
  AlignedBuffer<T> hidden_, dhidden_;
  AlignedBuffer<int32_t> negatives_;
  AlignedBuffer<T> logits_;  // of the negatives; later their exponentials
};

template <class T>
void forward(const SampledSoftmaxParams& params) {
  const PaddedRows<T> table(static_cast<const T*>(params.table), params.num_rows, params.dim);
  parallel_for(params.positions, 16, [&](int64_t begin, int64_t end) {
    PositionLoss<T> loss(params, table);
    for (int64_t t = begin; t < end; ++t) loss.compute(t);
  });
}

}  // namespace
}  // namespace cpu

void sampled_softmax_forward_cpu(const SampledSoftmaxParams& params, DType dtype) {
  cpu::dispatch(dtype, [&](auto zero) { cpu::forward<decltype(zero)>(params); });
}

}  // namespace seqfuse::ops
