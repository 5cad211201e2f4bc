// Tensor maps: what the copy engine of SM 9.0 has to know of a tensor in global memory to copy tiles of
// it to shared memory (tensor_copy.cuh).
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdint>

namespace seqfuse::ops::sm90 {

// 16-bit elements [batch, heads, rows, columns], of which rows are seen as [rows / step, step]: the map's
// coordinates are column, row % step, row / step, head, sequence.
struct RowsOfHeads {
  void* data;
  int64_t batch, heads, rows, columns;
  int64_t batch_bytes, head_bytes, row_bytes;
  int step;
};

// Tiles of 64 rows and 64 columns, as a Tile<64>; what the tensor does not have becomes zeros. Rows are
// a multiple of step, sizes are positive and fit in 31 bits, strides are positive multiples of 16 bytes
// below 2^40. Errors: cudaErrorInvalidValue if the driver refuses, cudaErrorNotSupported if it has no
// maps.
cudaError_t make_tensor_map(CUtensorMap& map, const RowsOfHeads& tensor);

}  // namespace seqfuse::ops::sm90
