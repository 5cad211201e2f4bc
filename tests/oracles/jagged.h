// Jagged tensors, one row at a time.
#pragma once

#include <torch/types.h>

#include <vector>

namespace seqfuse::oracle {

// Rows of sequence b, as a list.
inline std::vector<at::Tensor> rows_of(const at::Tensor& values, const at::Tensor& offsets,
                                       int64_t b) {
  std::vector<at::Tensor> rows;
  for (int64_t i = offsets[b].item<int64_t>(); i < offsets[b + 1].item<int64_t>(); ++i) {
    rows.push_back(values[i]);
  }
  return rows;
}

inline at::Tensor stack_rows(const std::vector<at::Tensor>& rows, int64_t dim,
                             at::TensorOptions options) {
  return rows.empty() ? at::empty({0, dim}, options) : at::stack(rows);
}

inline at::Tensor jagged_concat(const std::vector<at::Tensor>& parts,
                                const std::vector<at::Tensor>& offsets) {
  std::vector<at::Tensor> rows;
  for (int64_t b = 0; b + 1 < offsets[0].numel(); ++b) {
    for (size_t p = 0; p < parts.size(); ++p) {
      for (const at::Tensor& row : rows_of(parts[p], offsets[p], b)) rows.push_back(row);
    }
  }
  return stack_rows(rows, parts[0].size(1), parts[0].options());
}

inline at::Tensor jagged_to_dense(const at::Tensor& values, const at::Tensor& offsets,
                                  int64_t max_len, double padding) {
  at::Tensor dense =
      at::full({offsets.numel() - 1, max_len, values.size(1)}, padding, values.options());
  for (int64_t b = 0; b + 1 < offsets.numel(); ++b) {
    int64_t i = 0;
    for (const at::Tensor& row : rows_of(values, offsets, b)) {
      if (i < max_len) dense[b][i++] = row;
    }
  }
  return dense;
}

inline at::Tensor jagged_repeat(const at::Tensor& rows, const at::Tensor& offsets) {
  std::vector<at::Tensor> repeated;
  for (int64_t b = 0; b < rows.size(0); ++b) {
    const int64_t length = (offsets[b + 1] - offsets[b]).item<int64_t>();
    repeated.insert(repeated.end(), length, rows[b]);
  }
  return stack_rows(repeated, rows.size(1), rows.options());
}

}  // namespace seqfuse::oracle
