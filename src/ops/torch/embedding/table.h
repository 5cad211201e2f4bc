// Shared by operators that read table rows by id.
#pragma once

#include <torch/types.h>

#include "ops/torch/checks.h"

namespace seqfuse::ops {

// table is [V, D] of a dtype that operators take on its device, D at least 1, V below 2^31.
void check_table(const Arg& table);

// Checks the arguments common to both softmax losses: hidden [T, D] of the dtype of table [V, D], T
// below 2^31; targets [T]; a positive temperature.
void check_softmax_loss(const char* op, const Tensor& hidden, const Tensor& table,
                        const Tensor& targets, double temperature);

// Checks ids of any shape, of type at::kLong or at::kInt, on table's device; on the CPU also that
// each is a row of table. Returns them contiguous. The message names the first invalid id and its
// index.
Tensor checked_ids(const Arg& ids, at::ScalarType type, const Tensor& table);

// The terms of a table's gradient (kernels/row_sums.h); all tensors contiguous.
struct TableTerms {
  Tensor rows;      // [positions, D]; on a GPU maybe of another dtype than the table
  Tensor ids;       // int64 [positions]
  Tensor more_ids;  // int32 [positions, columns - 1]; undefined: columns = 1
  Tensor weights;   // [positions, columns], on a GPU float32; undefined: all 1
};

// The gradient of a table [num_rows, D]: dense, or on the CPU a coalesced sparse tensor of the rows
// with a term. On a GPU sums are made by atomics, or in a fixed order if
// at::globalContext().deterministicAlgorithms() is set.
Tensor table_gradient(const TableTerms& terms, int64_t num_rows, at::ScalarType type, bool sparse);

}  // namespace seqfuse::ops
