// The contents of an embedding table in a checkpoint: ids, rows and optimiser state.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <map>
#include <string>

#include "embeddings/update/parameter_state.h"

namespace seqfuse::embeddings {

struct TableContents {
  at::Tensor ids;      // int64 [n], each once, in any order; undefined: 0..n - 1 in order
  at::Tensor rows;     // [n, D]
  StateTensors state;  // of the optimiser, e.g. "exp_avg": [n, ...] each

  int64_t size() const { return rows.defined() ? rows.size(0) : 0; }
};

// In the state of a dynamic table's contents: float32 [D], the row of ids that are not given. A table
// with a fixed vocabulary that loads it gives them this row and, with LoadOptions::state, state of 0.
inline constexpr const char* kSharedRow = "shared_row";

struct LoadOptions {
  bool state = true;  // load the optimiser state too; otherwise it stays as it is
  // Every row must be given; otherwise rows not given stay as they are. Neither with a shared row.
  bool all_ids = true;
};

// Tensors of the state that are not the optimiser's but a dynamic table's (dynamic_table.h).
bool is_of_dynamic_table(const std::string& name);

// Checks that given fits a table with ids 0..num_rows - 1. here: the table's tensors, for the
// shapes of rows and state after the first dimension. Throws DataError naming the table, with the
// given and the expected value, for wrong shapes (also of the shared row), missing (and how many),
// repeated or unknown ids, and state of another optimiser. Ids may be missing from contents with a
// shared row.
void check_contents(const std::string& table, int64_t num_rows, const TableContents& here,
                    const TableContents& given, const LoadOptions& options);

}  // namespace seqfuse::embeddings
