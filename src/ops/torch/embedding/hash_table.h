// Hash tables on tensors (kernels/hash_table), on the device of their arguments.
#pragma once

#include <torch/types.h>

#include <cstdint>

#include "ops/kernels/hash_table/hash_table.h"
#include "ops/kernels/hash_table/rows.h"

namespace seqfuse::ops::hash_table {

using at::Tensor;

// On the current stream of the device.
void run(const Find& params, at::Device device);
void run(const Insert& params, at::Device device);
void run(const Erase& params, at::Device device);
void run(const InitializeRows& params, at::Device device);
void run(const GatherRows& params, at::Device device);
void run(const FindRows& params, at::Device device);
void run(const CopyRows& params, at::Device device);
void run(const UpdateRows& params, at::Device device);

// The arrays of an empty table.
struct Storage {
  Storage(int64_t capacity, at::Device device);

  View view() const;
  int64_t slots() const { return digests.numel(); }

  int64_t capacity, buckets;
  Tensor digests, keys, scores, touched, counters;  // touched: int32 bits of uint32
};

// The different ids of a batch [n], ascending, with how often each is there. On a GPU the tensors have
// n elements, of which `limit` are used, since reading their number would wait for the GPU.
struct UniqueIds {
  int64_t size() const { return ids.numel(); }

  Tensor ids;      // int64 [u]; beyond the limit 2^63 - 1
  Tensor often;    // int64 [u]
  Tensor inverse;  // int64 [n]: ids[inverse[i]] is the batch's id i
  Tensor limit;    // int64 [1] on a GPU; undefined: all are used
  // On a GPU, for sums over equal ids: the positions of the batch by id, and the index of their ids.
  Tensor order;        // int64 [n]
  Tensor sorted_rank;  // int32 [n]
};

// ids: int64 of any shape, contiguous. times: int64, how often each of them counts in `often`;
// undefined: once.
UniqueIds unique_ids(const Tensor& ids, const Tensor& times = {});

// Uninitialised, float32 [rows, columns], in memory of the host that kernels of this GPU can use (pinned, exactly
// as large as needed). Undefined if so much cannot be pinned, or in a build without CUDA. Freeing it waits
// for all kernels of the GPU, of which any may still read it.
Tensor pinned_rows(int64_t rows, int64_t columns, at::Device device);

// Sums of gradients [n, dim], float32, over equal ids: [u, dim], with the same bits in every run. zeros:
// on a GPU, rows beyond the limit are 0, else anything.
Tensor sum_by_id(const UniqueIds& unique, const Tensor& gradients, bool zeros = true);

}  // namespace seqfuse::ops::hash_table
