// The lists of a mask, made on the GPU.
#pragma once

#include <string>
#include <vector>

#include "benchmarks/kernels/hstu_attention_time.cuh"
#include "masks/block_mask.h"
#include "ops/kernels/mask/block_mask.h"

namespace seqfuse::bench {

// Memory for both steps, of the sizes that the host's lists have.
class ListsOnGpu {
 public:
  explicit ListsOnGpu(const masks::Mask& mask)
      : expected_(mask),
        blocks_(expected_.row_begin.size() * expected_.column_begin.size()),
        row_bitmaps_(expected_.row_begin.size()),
        row_begin_(expected_.row_begin.size()),
        column_begin_(expected_.column_begin.size()),
        column_(expected_.column.size()),
        bitmap_(expected_.column.size()),
        row_(expected_.column.size()),
        column_bitmap_(expected_.column.size()),
        bits_(expected_.bits.size()),
        seen_(expected_.seen.size()),
        allowed_(1) {
    build_.rule = mask.with_tables([&](const void* data, size_t bytes) -> const void* {
      const auto* from = static_cast<const uint8_t*>(data);
      tables_.push_back(Buffer<uint8_t>(std::vector<uint8_t>(from, from + bytes)));
      return tables_.back().get();
    });
    build_.batch = mask.batch();
    build_.step = expected_.step;
    for (Buffer<int32_t>* b : {&blocks_, &row_bitmaps_, &row_begin_, &column_begin_, &column_,
                               &bitmap_, &row_, &column_bitmap_})
      b->fill(0xff);
    allowed_.fill(0);
    build_.allowed = allowed_.get();
    build_.blocks = blocks_.get();
    build_.row_bitmaps = row_bitmaps_.get();
    build_.row_begin = row_begin_.get();
    build_.column_begin = column_begin_.get();
    build_.column = column_.get();
    build_.bitmap = bitmap_.get();
    build_.row = row_.get();
    build_.column_bitmap = column_bitmap_.get();
    build_.bits = bits_.get();
    build_.seen = seen_.get();
  }

  void count(cudaStream_t stream = nullptr) const {
    must(ops::block_mask_count_cuda(build_, stream), "count");
  }
  void fill(cudaStream_t stream = nullptr) const {
    must(ops::block_mask_fill_cuda(build_, stream), "fill");
  }

  // Makes them, and names the first list that differs from the host's; empty: none.
  std::string difference() const {
    count();
    if (static_cast<int64_t>(allowed_.host()[0]) != expected_.counts().allowed) return "allowed";
    if (row_begin_.host() != expected_.row_begin) return "row_begin";
    if (column_begin_.host() != expected_.column_begin) return "column_begin";
    if (static_cast<size_t>(row_bitmaps_.host().back()) * 2 != expected_.seen.size())
      return "number of bitmaps";
    fill();
    must(cudaDeviceSynchronize(), "lists");
    if (column_.host() != expected_.column) return "column";
    if (bitmap_.host() != expected_.bitmap) return "bitmap";
    if (row_.host() != expected_.row) return "row";
    if (column_bitmap_.host() != expected_.column_bitmap) return "column_bitmap";
    if (bits_.host() != expected_.bits) return "bits";
    return seen_.host() != expected_.seen ? "seen" : "";
  }

 private:
  masks::BlockMask expected_;
  std::vector<Buffer<uint8_t>> tables_;
  Buffer<int32_t> blocks_, row_bitmaps_, row_begin_, column_begin_;
  Buffer<int32_t> column_, bitmap_, row_, column_bitmap_;
  Buffer<uint64_t> bits_, seen_;
  Buffer<unsigned long long> allowed_;
  ops::BlockMaskBuild build_;
};

}  // namespace seqfuse::bench
