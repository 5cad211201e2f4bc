#include "ops/kernels/hash_table/rows.h"

#include <algorithm>
#include <array>
#include <atomic>
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
    float* row = p.rows.row(p.slots[i]);
    for (int64_t c = 0; c < p.rows.dim; ++c) row[c] = initial_value(p.init, p.ids[i], c);
    std::fill(row + p.rows.dim, row + p.rows.width, 0.0F);
  });
}

void gather_rows_cpu(const GatherRows& p) {
  each_row(p.count, nullptr, p.rows.dim, [&](int64_t i) {
    const int64_t slot = p.slots[p.index ? p.index[i] : i];
    const float* row = slot < 0 ? p.missing : p.rows.row(slot);
    std::memcpy(p.out + i * p.rows.dim, row, p.rows.dim * sizeof(float));
  });
}

void find_rows_cpu(const FindRows& p) {
  std::atomic<int64_t> unknown = 0;
  constexpr int64_t kKeys = 64;  // looked up at a time
  parallel_for((p.count + kKeys - 1) / kKeys, kTaskValues / (kKeys * p.rows.dim + 1) + 1,
               [&](int64_t begin, int64_t end) {
                 std::array<int64_t, kKeys> slots;
                 for (int64_t block = begin; block < end; ++block) {
                   const int64_t first = block * kKeys, n = std::min(kKeys, p.count - first);
                   find_cpu({.table = p.table,
                             .keys = p.keys + first,
                             .count = n,
                             .limit = nullptr,
                             .slots = slots.data()});
                   gather_rows_cpu({.rows = p.rows,
                                    .slots = slots.data(),
                                    .index = nullptr,
                                    .count = n,
                                    .missing = p.missing,
                                    .out = p.out + first * p.rows.dim});
                   unknown += std::count(slots.begin(), slots.begin() + n, -1);
                 }
               });
  *p.unknown += unknown;
}

void copy_rows_cpu(const CopyRows& p) {
  each_row(p.count, p.limit, p.to.width, [&](int64_t i) {
    const int64_t from = p.from_slots ? p.from_slots[i] : i, to = p.to_slots ? p.to_slots[i] : i;
    if (from < 0 || to < 0 || (p.states && p.states[i] != p.state)) return;
    std::memcpy(p.to.row(to), p.from.row(from), p.to.width * sizeof(float));
  });
}

void update_rows_cpu(const UpdateRows& p) {
  const int64_t dim = p.rows.dim;
  each_row(p.count, p.limit, p.rows.width, [&](int64_t i) {
    if (p.slots[i] < 0) return;
    const float* gradient = p.gradients + i * dim;
    float* row = p.rows.row(p.slots[i]);
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
