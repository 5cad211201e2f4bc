// Parallel loops over the rows of a matrix.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/parallel.h"

namespace seqfuse::ops::cpu {

// Rows of dim elements that make a task worth its overhead.
inline int64_t row_grain(int64_t dim) {
  return std::max<int64_t>(1, 16384 / std::max<int64_t>(1, dim));
}

// body(i) for each row i, in parallel.
template <class Body>
void for_each_row(int64_t rows, int64_t dim, Body&& body) {
  parallel_for(rows, row_grain(dim), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) body(i);
  });
}

}  // namespace seqfuse::ops::cpu
