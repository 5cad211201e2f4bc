// A cache in a GPU's memory of rows that are in memory of the host.
#pragma once

#include <torch/types.h>

#include <cstdint>

#include "ops/torch/embedding/hash_table.h"

namespace seqfuse::embeddings {

// Rows in use are in the cache, and only there up to date; a row that leaves it is written back. The
// row that was not used for longest leaves first. Nothing waits for a GPU.
//
// A place of a row is its slot in the cache, or, from slots() on, slots() + its home: its slot in the
// host's memory. Rows of `rows(home)` are indexed by places.
class RowCache {
 public:
  // capacity: rows. stride: floats from a row to the next. Throws torch's error if memory does not
  // suffice.
  RowCache(int64_t capacity, int64_t stride, at::Device device, bool in_order);

  int64_t slots() const { return keys_.slots(); }
  int64_t bytes() const;
  // home: all rows, in host memory (or any that the device can use).
  ops::hash_table::Rows rows(const ops::hash_table::Rows& home) const;

  // Brings the rows of a batch's ids [n], each once, with these homes (-1: none) into the cache, as far
  // as they fit, and returns their places [n]; -1 without a home.
  at::Tensor bring(const at::Tensor& ids, const at::Tensor& limit, const at::Tensor& homes,
                   const ops::hash_table::Rows& home);
  // Places [n] of ids with these homes. Changes nothing.
  at::Tensor places(const at::Tensor& ids, const at::Tensor& limit, const at::Tensor& homes) const;
  at::Tensor homes(const at::Tensor& places) const;
  // Drops rows, without writing them back.
  void erase(const at::Tensor& ids, const at::Tensor& limit, const at::Tensor& allowed);
  void clear();

 private:
  at::Device device_;
  bool in_order_;
  ops::hash_table::Storage keys_;
  at::Tensor values_;  // float32 [slots, stride]
  at::Tensor homes_;   // int64 [slots + 1]: of the row in each slot; the last one is never read
  int64_t calls_ = 0;
};

}  // namespace seqfuse::embeddings
