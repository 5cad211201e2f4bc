// Builds the block structure of a mask (masks/block_mask_view.h) on the GPU: the lists that
// masks::BlockMask makes on the host, to the bit. Memory: one number for each block, and the lists.
//
// Two steps, since the sizes of the lists are known only after the first: block_mask_count_cuda
// adds the number of allowed pairs to `allowed` and writes row_begin, row_bitmaps and column_begin, whose last elements are the numbers of entries, of
// bitmaps, and of entries again. The caller allocates that many, and block_mask_fill_cuda writes the
// other lists. The two orders are the caller's: sort the differences of the begins.
//
// Determinism: the only atomics are of integers. Errors: those of the CUDA runtime. Compiled with
// --expt-relaxed-constexpr, for the functions of masks/rule.h.
#pragma once

#include <cstdint>

#include "masks/block_mask_view.h"
#include "masks/rule.h"
#include "ops/kernels/common/cuda_api.h"

namespace seqfuse::ops {

struct BlockMaskBuild {
  masks::Rule rule;  // its tables are in device memory
  int64_t batch = 1;
  int32_t step = 1;  // of the blocks; masks::block_step

  // First step. rows = batch * query blocks, columns = batch * key blocks.
  unsigned long long* allowed = nullptr;  // 0 before
  int32_t* blocks = nullptr;              // workspace [batch, query blocks, key blocks]
  int32_t* row_begin = nullptr;           // [rows + 1]
  int32_t* row_bitmaps = nullptr;         // workspace [rows + 1]: the first bitmap of each row
  int32_t* column_begin = nullptr;        // [columns + 1]

  // Second step.
  int32_t *column = nullptr, *bitmap = nullptr;      // [entries]
  int32_t *row = nullptr, *column_bitmap = nullptr;  // [entries]
  uint64_t* bits = nullptr;                          // [bitmaps, 64]
  uint64_t* seen = nullptr;                          // [bitmaps, 2]

  constexpr int64_t query_blocks() const { return masks::count_of_blocks(rule.queries, step); }
  constexpr int64_t key_blocks() const { return masks::count_of_blocks(rule.keys, step); }
};

#ifdef SEQFUSE_CUDA_API
cudaError_t block_mask_count_cuda(const BlockMaskBuild& build, cudaStream_t stream);
cudaError_t block_mask_fill_cuda(const BlockMaskBuild& build, cudaStream_t stream);
#endif

}  // namespace seqfuse::ops
