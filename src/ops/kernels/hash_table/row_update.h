// The optimisers' arithmetic on one row of a table, which holds its state after its weights:
//
//   sgd               [w: dim]
//   adam              [w: dim | exp_avg: dim | exp_avg_sq: dim]
//   adagrad           [w: dim | sum_sq: dim]
//   row_wise_adagrad  [w: dim | sum_sq: 1]
//
// With g the gradient times `scale`, t the number of updates so far including this one:
//   adam              m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g^2;
//                     w -= lr m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps)
//   sgd               w -= lr g
//   adagrad           a += g^2; w -= lr g / (sqrt(a) + eps)
//   row_wise_adagrad  a += mean of the row's g^2; w -= lr g / (sqrt(a) + eps)
#pragma once

#include <math.h>

#include "ops/kernels/common/host_device.h"

namespace seqfuse::ops::hash_table {

enum class RowOptimizer : int { sgd, adam, adagrad, row_wise_adagrad };

// Numbers of a row's state, after its dim weights.
SEQFUSE_HOST_DEVICE constexpr int64_t state_length(RowOptimizer kind, int64_t dim) {
  if (kind == RowOptimizer::adam) return 2 * dim;
  if (kind == RowOptimizer::adagrad) return dim;
  return kind == RowOptimizer::row_wise_adagrad ? 1 : 0;
}

struct RowUpdate {
  RowOptimizer kind = RowOptimizer::sgd;
  float learning_rate = 0, scale = 1;
  float beta1 = 0, beta2 = 0, keep1 = 0, keep2 = 0;  // keep: 1 - beta
  float epsilon = 0;
  float rate = 0;                           // adam: lr / (1 - b1^t)
  float inverse_root = 0;                   // adam: 1 / sqrt(1 - b2^t)
  double exact_beta1 = 0, exact_beta2 = 0;  // for StepNumbers
};

// Numbers of a step that are on the GPU: they replace those of RowUpdate. Null: none are.
struct StepNumbers {
  const float* count = nullptr;  // t
  const float* learning_rate = nullptr;
  const float* scale = nullptr;
  const float* skip = nullptr;  // not 0: the step changes nothing
};

// The update of optimiser `kind` in step t.
inline RowUpdate row_update(RowOptimizer kind, double learning_rate, double scale, double beta1,
                            double beta2, double epsilon, double t) {
  RowUpdate u;
  u.kind = kind;
  u.learning_rate = static_cast<float>(learning_rate);
  u.scale = static_cast<float>(scale);
  u.beta1 = static_cast<float>(beta1);
  u.beta2 = static_cast<float>(beta2);
  u.keep1 = static_cast<float>(1 - beta1);
  u.keep2 = static_cast<float>(1 - beta2);
  u.epsilon = static_cast<float>(epsilon);
  u.exact_beta1 = beta1;
  u.exact_beta2 = beta2;
  if (kind == RowOptimizer::adam) {
    u.rate = static_cast<float>(learning_rate / (1 - pow(beta1, t)));
    u.inverse_root = static_cast<float>(1 / sqrt(1 - pow(beta2, t)));
  }
  return u;
}

// Column c of all but row_wise_adagrad.
SEQFUSE_HOST_DEVICE void update_column(const RowUpdate& u, float gradient, float* row, int64_t dim,
                                       int64_t c) {
  const float g = gradient * u.scale;
  if (u.kind == RowOptimizer::sgd) {
    row[c] -= u.learning_rate * g;
  } else if (u.kind == RowOptimizer::adam) {
    const float m = u.beta1 * row[dim + c] + u.keep1 * g;
    const float v = u.beta2 * row[2 * dim + c] + u.keep2 * g * g;
    row[dim + c] = m;
    row[2 * dim + c] = v;
    row[c] -= u.rate * m / (sqrtf(v) * u.inverse_root + u.epsilon);
  } else {
    const float a = row[dim + c] + g * g;
    row[dim + c] = a;
    row[c] -= u.learning_rate * g / (sqrtf(a) + u.epsilon);
  }
}

}  // namespace seqfuse::ops::hash_table
