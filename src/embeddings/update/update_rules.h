// The arithmetic of the optimisers on one row of a parameter. T: float or double.
#pragma once

#include <cmath>
#include <cstdint>

namespace seqfuse::embeddings {

// The values shared by all elements in a step.
struct UpdateRule {
  double learning_rate = 0, gradient_scale = 1;
  double beta1 = 0, beta2 = 0, epsilon = 0;
  double correction1 = 1, correction2 = 1;  // 1 - beta^t
  double decay = 0;                         // coupled: added to the gradient
  double shrink = 1;                        // decoupled: multiplies the weight first
};

template <class T>
void adam_row(const UpdateRule& rule, int64_t n, const T* __restrict gradient, T* __restrict weight,
              T* __restrict exp_avg, T* __restrict exp_avg_sq) {
  const T beta1 = static_cast<T>(rule.beta1), beta2 = static_cast<T>(rule.beta2);
  const T keep1 = static_cast<T>(1 - rule.beta1), keep2 = static_cast<T>(1 - rule.beta2);
  const T scale = static_cast<T>(rule.gradient_scale), decay = static_cast<T>(rule.decay);
  const T shrink = static_cast<T>(rule.shrink), epsilon = static_cast<T>(rule.epsilon);
  const T rate = static_cast<T>(rule.learning_rate / rule.correction1);
  const T inverse_root = static_cast<T>(1 / std::sqrt(rule.correction2));
  for (int64_t i = 0; i < n; ++i) {
    const T g = gradient[i] * scale + decay * weight[i];
    const T m = beta1 * exp_avg[i] + keep1 * g;
    const T v = beta2 * exp_avg_sq[i] + keep2 * g * g;
    exp_avg[i] = m;
    exp_avg_sq[i] = v;
    weight[i] = shrink * weight[i] - rate * m / (std::sqrt(v) * inverse_root + epsilon);
  }
}

template <class T>
void sgd_row(const UpdateRule& rule, int64_t n, const T* __restrict gradient,
             T* __restrict weight) {
  const T scale = static_cast<T>(rule.gradient_scale), decay = static_cast<T>(rule.decay);
  const T rate = static_cast<T>(rule.learning_rate);
  for (int64_t i = 0; i < n; ++i) weight[i] -= rate * (gradient[i] * scale + decay * weight[i]);
}

template <class T>
void row_wise_adagrad_row(const UpdateRule& rule, int64_t n, const T* __restrict gradient,
                          T* __restrict weight, T& sum_sq) {
  const T scale = static_cast<T>(rule.gradient_scale), decay = static_cast<T>(rule.decay);
  T total = 0;
  for (int64_t i = 0; i < n; ++i) {
    const T g = gradient[i] * scale + decay * weight[i];
    total += g * g;
  }
  sum_sq += total / static_cast<T>(n);
  const T rate =
      static_cast<T>(rule.learning_rate) / (std::sqrt(sum_sq) + static_cast<T>(rule.epsilon));
  for (int64_t i = 0; i < n; ++i) weight[i] -= rate * (gradient[i] * scale + decay * weight[i]);
}

}  // namespace seqfuse::embeddings
