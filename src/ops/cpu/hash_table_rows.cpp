#include "ops/kernels/hash_table/rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/parallel.h"

namespace seqfuse::ops::hash_table {
namespace {

constexpr int64_t kTaskValues = 1 << 14;

// body(i) for each of the rows, in parallel.
template <class Body>
void each_row(int64_t count, const int64_t* limit, int64_t row_values, Body&& body) {
  const int64_t n = limit ? std::min(count, *limit) : count;
  parallel_for(n, kTaskValues / std::max<int64_t>(1, row_values) + 1,
               [&](int64_t begin, int64_t end) {
                 for (int64_t i = begin; i < end; ++i) body(i);
               });
}

}  // namespace

void initialize_rows_cpu(const InitializeRows& p) {
  each_row(p.count, p.limit, p.rows.width, [&](int64_t i) {
    if (p.slots[i] < 0 || (p.states && p.states[i] != p.state)) return;
    float* row = p.rows.values + p.slots[i] * p.rows.stride;
    for (int64_t c = 0; c < p.rows.dim; ++c) row[c] = initial_value(p.init, p.ids[i], c);
    std::fill(row + p.rows.dim, row + p.rows.width, 0.0F);
  });
}

void gather_rows_cpu(const GatherRows& p) {
  each_row(p.count, nullptr, p.rows.dim, [&](int64_t i) {
    const int64_t slot = p.slots[p.index ? p.index[i] : i];
    const float* row = slot < 0 ? p.missing : p.rows.values + slot * p.rows.stride;
    std::memcpy(p.out + i * p.rows.dim, row, p.rows.dim * sizeof(float));
  });
}

void update_rows_cpu(const UpdateRows& p) {
  const int64_t dim = p.rows.dim;
  each_row(p.count, p.limit, p.rows.width, [&](int64_t i) {
    if (p.slots[i] < 0) return;
    const float* gradient = p.gradients + i * dim;
    float* row = p.rows.values + p.slots[i] * p.rows.stride;
    if (p.update.kind != RowOptimizer::row_wise_adagrad) {
      for (int64_t c = 0; c < dim; ++c) update_column(p.update, gradient[c], row, dim, c);
      return;
    }
    float squares = 0;
    for (int64_t c = 0; c < dim; ++c) {
      const float g = gradient[c] * p.update.scale;
      squares += g * g;
    }
    row[dim] += squares / static_cast<float>(dim);
    const float rate = p.update.learning_rate / (std::sqrt(row[dim]) + p.update.epsilon);
    for (int64_t c = 0; c < dim; ++c) row[c] -= rate * (gradient[c] * p.update.scale);
  });
}

}  // namespace seqfuse::ops::hash_table
