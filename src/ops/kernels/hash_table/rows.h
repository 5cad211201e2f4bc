// The rows of a hash table's slots: float32 [slots, stride], stride >= width = dim weights and the
// optimiser's state (row_update.h). Columns from width on are padding and stay as they are. Rows are
// in one array or in two, such as memory of the GPU and pinned memory of the host.
//
// limit: as in hash_table.h. Slots of a batch differ from each other, except in gather; -1 is
// skipped.
//
// Determinism: the same bits from run to run and for any number of threads. CPU and GPU differ by
// rounding. Memory: none.
#pragma once

#include <cstdint>

#include "ops/kernels/common/cuda_api.h"
#include "ops/kernels/common/host_device.h"
#include "ops/kernels/hash_table/hash_table.h"
#include "ops/kernels/hash_table/row_init.h"
#include "ops/kernels/hash_table/row_update.h"

namespace seqfuse::ops::hash_table {

struct Rows {
  float* values;  // [split, stride]; [slots, stride] without others
  int64_t stride, dim, width;
  float* others = nullptr;             // [slots - split, stride]
  int64_t split = 0x7FFFFFFFFFFFFFFF;  // slots from here on are in others

  SEQFUSE_HOST_DEVICE float* row(int64_t slot) const {
    return slot < split ? values + slot * stride : others + (slot - split) * stride;
  }
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

// Evaluation: out[i] = the weights of keys[i], which may be repeated, or `missing` if it has no row, which
// is counted. Find and GatherRows in one.
struct FindRows {
  View table;
  Rows rows;
  const int64_t* keys;  // [count]
  int64_t count;
  const float* missing;  // [dim]
  float* out;            // [count, dim]
  int64_t* unknown;      // keys without a row are added to it
};

// Copies whole rows, weights and state: row from_slots[i] to row to_slots[i], where states[i] is
// `state`. Both have the same width. No slot is both read and written.
struct CopyRows {
  Rows from, to;
  const int64_t* from_slots;  // [count]; null: i
  const int64_t* to_slots;    // [count]; null: i
  const uint8_t* states;      // [count]; null: all
  uint8_t state;
  int64_t count;
  const int64_t* limit;
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
void find_rows_cpu(const FindRows& params);
void copy_rows_cpu(const CopyRows& params);
void update_rows_cpu(const UpdateRows& params);

#ifdef SEQFUSE_CUDA_API
// Enqueue on the current device's stream; no allocation, no synchronisation.
cudaError_t initialize_rows_cuda(const InitializeRows& params, cudaStream_t stream);
cudaError_t gather_rows_cuda(const GatherRows& params, cudaStream_t stream);
cudaError_t find_rows_cuda(const FindRows& params, cudaStream_t stream);
cudaError_t copy_rows_cuda(const CopyRows& params, cudaStream_t stream);
cudaError_t update_rows_cuda(const UpdateRows& params, cudaStream_t stream);
#endif

}  // namespace seqfuse::ops::hash_table
