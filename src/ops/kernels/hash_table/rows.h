// The rows of a hash table's slots: float32 [slots, stride], stride >= width = dim weights and the
// optimiser's state (row_update.h). Columns from width on are padding and stay as they are.
//
// limit: as in hash_table.h. Slots of a batch differ from each other, except in gather; -1 is
// skipped.
//
// Determinism: the same bits from run to run and for any number of threads. CPU and GPU differ by
// rounding. Memory: none.
#pragma once

#include <cstdint>

#include "ops/kernels/common/cuda_api.h"
#include "ops/kernels/hash_table/row_init.h"
#include "ops/kernels/hash_table/row_update.h"

namespace seqfuse::ops::hash_table {

struct Rows {
  float* values;  // [slots, stride]
  int64_t stride, dim, width;
};

// Where states[i] is `state` (hash_table.h): the initial row of ids[i], and a state of zeros.
struct InitializeRows {
  Rows rows;
  RowInit init;
  const int64_t* ids;     // [count]
  const int64_t* slots;   // [count]
  const uint8_t* states;  // [count]; null: all
  uint8_t state;
  int64_t count;
  const int64_t* limit;
};

// out[i] = the weights of slots[index[i]], or `missing` if that is -1.
struct GatherRows {
  Rows rows;
  const int64_t* slots;
  const int64_t* index;  // [count]; null: i
  int64_t count;
  const float* missing;  // [dim]
  float* out;            // [count, dim]
};

// Updates the rows of slots with the gradients [count, dim].
struct UpdateRows {
  Rows rows;
  RowUpdate update;
  const int64_t* slots;    // [count]
  const float* gradients;  // [count, dim]
  int64_t count;
  const int64_t* limit;
  StepNumbers step;  // CUDA only
};

void initialize_rows_cpu(const InitializeRows& params);
void gather_rows_cpu(const GatherRows& params);
void update_rows_cpu(const UpdateRows& params);

#ifdef SEQFUSE_CUDA_API
// Enqueue on the current device's stream; no allocation, no synchronisation.
cudaError_t initialize_rows_cuda(const InitializeRows& params, cudaStream_t stream);
cudaError_t gather_rows_cuda(const GatherRows& params, cudaStream_t stream);
cudaError_t update_rows_cuda(const UpdateRows& params, cudaStream_t stream);
#endif

}  // namespace seqfuse::ops::hash_table
