// Rows of a table by id, and the gradient of the table, in float64.
#pragma once

#include <torch/types.h>

namespace seqfuse::oracle {

inline at::Tensor embedding(const at::Tensor& table, const at::Tensor& ids) {
  at::Tensor out = at::empty({ids.numel(), table.size(1)}, table.options());
  for (int64_t i = 0; i < ids.numel(); ++i) out[i] = table[ids[i].item<int64_t>()];
  return out;
}

inline at::Tensor embedding_backward(const at::Tensor& dout, const at::Tensor& ids,
                                     int64_t num_rows) {
  at::Tensor dtable = at::zeros({num_rows, dout.size(1)}, dout.options());
  const auto in = dout.accessor<double, 2>();
  const at::Tensor rows = ids.to(at::kLong);
  const auto row = rows.accessor<int64_t, 1>();
  auto out = dtable.accessor<double, 2>();
  for (int64_t i = 0; i < ids.numel(); ++i) {
    for (int64_t j = 0; j < dout.size(1); ++j) out[row[i]][j] += in[i][j];
  }
  return dtable;
}

}  // namespace seqfuse::oracle
