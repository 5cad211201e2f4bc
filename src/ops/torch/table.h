// What operators that read rows of a table by id share.
#pragma once

#include <torch/torch.h>

#include "ops/kernels/row_sums.h"
#include "ops/torch/checks.h"

namespace seqfuse::ops {

// table is [V, D] on the CPU, float32 or float64, D at least 1, V below 2^31.
void check_table(const Arg& table);

// The arguments that both softmax losses have: hidden [T, D] of the dtype of table [V, D], T below
// 2^31; targets [T]; a positive temperature.
void check_softmax_loss(const char* op, const Tensor& hidden, const Tensor& table,
                        const Tensor& targets, double temperature);

// ids of any shape, of type at::kLong or at::kInt, each in [0, num_rows). Returned contiguous. The
// message names the first id outside and its place.
Tensor checked_ids(const Arg& ids, at::ScalarType type, int64_t num_rows);

// The gradient of a table [params.num_rows, params.dim] from its terms: dense, or as a coalesced
// sparse tensor of the rows that have one.
Tensor table_gradient(const RowSumParams& params, at::ScalarType type, bool sparse);

}  // namespace seqfuse::ops
