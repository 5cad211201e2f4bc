// Reads a batch's sequences from offsets and counts, and checks both.
#pragma once

#include "ops/kernels/attention/common/work_list.h"

// Declared by the CUDA runtime for assert(); repeated here so that the compiler knows its effect.
extern "C" __host__ __device__ void __assert_fail(const char* assertion, const char* file,
                                                  unsigned line, const char* function) noexcept
    __attribute__((noreturn));

namespace seqfuse::ops::attention {

struct ListArguments {
  const void* q_offsets;
  const void* k_offsets;
  bool int32_offsets;
  const int64_t* contexts;
  const int64_t* targets;
  int batch, total_queries, total_keys;
  int tile_rows, max_seqlen;  // tile_rows: a power of two
  bool of_keys;               // tiles of keys, not of queries
  bool causal;                // later query tiles see more keys, later key tiles are seen by less
  int groups;                 // groups of sequences; last_group and later ones are merged
  int last_group;
  WorkList* list;
};

constexpr int kElementThreads = 256;

struct SequenceBounds {
  int64_t q_begin, q_end, k_begin, k_end, contexts, targets;

  __device__ __forceinline__ SequenceBounds(const ListArguments& a, int b)
      : q_begin(offset_at(a.q_offsets, a.int32_offsets, b)),
        q_end(offset_at(a.q_offsets, a.int32_offsets, b + 1)),
        k_begin(offset_at(a.k_offsets, a.int32_offsets, b)),
        k_end(offset_at(a.k_offsets, a.int32_offsets, b + 1)),
        contexts(a.contexts ? a.contexts[b] : 0),
        targets(a.targets ? a.targets[b] : 0) {}

  __device__ __forceinline__ WorkItem item(int b) const {
    WorkItem item{};
    item.sequence = b;
    item.q_begin = static_cast<int>(q_begin);
    item.k_begin = static_cast<int>(k_begin);
    item.queries = static_cast<int>(q_end) - item.q_begin;
    item.keys = static_cast<int>(k_end) - item.k_begin;
    item.contexts = static_cast<int>(contexts);
    item.targets = static_cast<int>(targets);
    return item;
  }
};

__device__ __forceinline__ WorkItem item_of(const ListArguments& a, int b) {
  return SequenceBounds(a, b).item(b);
}

// Called where a kernel first reads offsets and counts. The host does not wait for the GPU to check
// them, so a bad value fails a device assertion that names the kernel. The kernel stops, and the
// program gets cudaErrorAssert from its next synchronising call. A sequence that passes accesses
// nothing outside its tensors, whatever the other sequences are.
__device__ __forceinline__ void check_sequence(const ListArguments& a, int b, const char* kernel) {
  const SequenceBounds bounds(a, b);
  const WorkItem item = bounds.item(b);
  const auto within = [](int value, int most) {  // value in [0, most]; most is never negative
    return static_cast<unsigned>(value) <= static_cast<unsigned>(most);
  };
  const int q_end = item.q_begin + item.queries, k_end = item.k_begin + item.keys;
  const bool small = ((bounds.q_begin | bounds.q_end | bounds.k_begin | bounds.k_end |
                       bounds.contexts | bounds.targets) >>
                      31) == 0;
  const bool right = small && within(item.keys, a.max_seqlen) && within(item.queries, item.keys) &&
                     within(item.contexts, item.keys) &&
                     within(item.targets, item.keys - item.contexts) && q_end <= a.total_queries &&
                     k_end <= a.total_keys && (b > 0 || (item.q_begin | item.k_begin) == 0) &&
                     (b + 1 < a.batch || (q_end == a.total_queries && k_end == a.total_keys));
  if (!right) {
    __assert_fail(
        "expected q_offsets and k_offsets that start with 0, do not decrease and end with the rows "
        "of q and k; for each sequence queries <= keys <= max_seqlen; and num_contexts >= 0 and "
        "num_targets >= 0 with a sum of at most its keys",
        "hstu_attention", 0, kernel);
  }
}
__device__ __forceinline__ WorkItem checked_item_of(const ListArguments& a, int b,
                                                    const char* kernel) {
  check_sequence(a, b, kernel);
  return item_of(a, b);
}

// Only the check, for attention that does not run these kernels.
__global__ void __launch_bounds__(kElementThreads)
    check_sequences_kernel(const __grid_constant__ ListArguments a) {
  const int b = static_cast<int>(blockIdx.x * kElementThreads + threadIdx.x);
  if (b < a.batch) check_sequence(a, b, "check of sequences");
}

}  // namespace seqfuse::ops::attention
