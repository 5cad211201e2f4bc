// Writes the lists of tiles that attention kernels work through.
#pragma once

#include "ops/kernels/attention/common/sequences.cuh"
#include "ops/kernels/common/sm80/ptx.cuh"

namespace seqfuse::ops::attention {

constexpr int kPrepareThreads = 1024;
constexpr int kOrderSlice = kPrepareThreads;  // sequences sorted at a time
constexpr int kSequenceThreads = 8;           // threads per sequence

__device__ __forceinline__ int tiles_of(const ListArguments& a, const WorkItem& item) {
  return ((a.of_keys ? item.keys : item.queries) + a.tile_rows - 1) >> (31 - __clz(a.tile_rows));
}

// The first index in [from, to) where a monotone condition (false, then true) holds; to if none.
template <class Condition>
__device__ __forceinline__ int first_place(int from, int to, Condition&& holds) {
  while (from < to) {
    const int middle = (from + to) / 2;
    if (holds(middle)) {
      to = middle;
    } else {
      from = middle + 1;
    }
  }
  return from;
}

// A block writes the records of all tiles of a slice of sequences.
//
// Sequences are sorted by length and cut into groups whose inputs fit in the L2 cache. Within a
// group the tiles that see most come first, so the grid ends on small tiles and its blocks finish
// together. Without groups, concurrent tiles would read different heads; without sorting within
// groups, the last sequence's largest tiles would start when most blocks are out of work. The last
// group may merge two: with more small tiles left for the end, the load is more even.
//
// Small batches are bound by latency: of memory, and of instructions that run once and so miss the
// instruction cache. So memory is read once, arguments are all read at the start, loops over
// sequences and tiles are not unrolled, and integers are not divided. The thread that finds a
// sequence's rank and position also writes group bounds, which saves a search.
__device__ __forceinline__ void make_list(const ListArguments a, int slice) {
  __shared__ uint64_t size[kOrderSlice];  // tiles, then length of the other side; 0 past the end
  // The records without tile: start and length of queries, of keys; contexts and targets.
  __shared__ int2 queries[kOrderSlice];
  __shared__ int4 keys[kOrderSlice];
  __shared__ int start[kOrderSlice + 1];                                 // by rank, as the next two
  __shared__ uint16_t sequence[kOrderSlice], group[kOrderSlice];         // within the slice
  __shared__ uint16_t group_begin[kOrderSlice], group_end[kOrderSlice];  // ranks
  __shared__ int earlier;                                                // tiles of earlier slices
  constexpr unsigned kAll = 0xffffffffu;
  constexpr int kSequences = 32 / kSequenceThreads;  // per warp
  const int lane = threadIdx.x % 32, part = threadIdx.x % kSequenceThreads;
  const int first = slice * kOrderSlice;
  const int count = min(kOrderSlice, a.batch - first);

  if (threadIdx.x == 0) earlier = 0;
  size[threadIdx.x] = 0;
  if (threadIdx.x < count) {
    const int s = threadIdx.x;
    const WorkItem item = item_of(a, first + s);
    size[s] = static_cast<uint64_t>(tiles_of(a, item)) << 32 |
              static_cast<uint32_t>(a.of_keys ? item.queries : item.keys);
    queries[s] = {item.q_begin, item.queries};
    keys[s] = {item.k_begin, item.keys, item.contexts, item.targets};
  }
  // In small batches other threads do the check, in parallel with the sort.
  const int checked = kOrderSlice - 1 - static_cast<int>(threadIdx.x);
  if (checked < count) check_sequence(a, first + checked, "list of work");
  __syncthreads();
  if (first > 0) {
    int before = 0;
#pragma unroll 1
    for (int b = threadIdx.x; b < first; b += kPrepareThreads)
      before += tiles_of(a, checked_item_of(a, b, "list of work"));
    before = __reduce_add_sync(kAll, before);
    if (lane == 0) atomicAdd(&earlier, before);
  }

  for (int s0 = threadIdx.x / 32 * kSequences; s0 < count;
       s0 += kPrepareThreads / kSequenceThreads) {
    const int s = s0 + lane / kSequenceThreads;
    const uint64_t own = size[s];
    int rank = 0, place = 0, total = 0;
#pragma unroll 1
    for (int begin = part; begin < count; begin += 32) {
#pragma unroll
      for (int other = begin; other < begin + 32; other += kSequenceThreads) {
        const uint64_t theirs = size[other];
        const int tiles = static_cast<int>(theirs >> 32);
        total += tiles;
        if (theirs > own || (theirs == own && other < s)) {
          ++rank;
          place += tiles;
        }
      }
    }
#pragma unroll
    for (int distance = kSequenceThreads / 2; distance > 0; distance /= 2) {
      rank += __shfl_xor_sync(kAll, rank, distance);
      place += __shfl_xor_sync(kAll, place, distance);
      total += __shfl_xor_sync(kAll, total, distance);
    }
    if (part == 0 && s < count) {
      const float groups_per_tile = __fdividef(a.groups, max(1, total));
      const auto group_at = [&](int at) {
        const int group = static_cast<int>((static_cast<float>(at) + 0.5f) * groups_per_tile);
        return static_cast<uint16_t>(min(group, a.last_group));
      };
      const int end = place + static_cast<int>(own >> 32);
      const uint16_t here = group_at(place), next = group_at(end);
      sequence[rank] = static_cast<uint16_t>(s);
      start[rank] = place;
      group[rank] = here;
      if (rank == 0) group_begin[here] = 0;
      if (rank == count - 1) {
        start[count] = end;
        group_end[here] = static_cast<uint16_t>(count);
      } else if (next != here) {
        group_end[here] = group_begin[next] = static_cast<uint16_t>(rank + 1);
      }
    }
  }
  __syncthreads();

  for (int rank = threadIdx.x / kSequenceThreads; rank < count;
       rank += kPrepareThreads / kSequenceThreads) {
    const int s = sequence[rank], from = start[rank], tiles = start[rank + 1] - from;
    const int begin = group_begin[group[rank]], end = group_end[group[rank]];
    const int2 q = queries[s];
    const int4 k = keys[s];
#pragma unroll 1
    for (int t = part; t < tiles; t += kSequenceThreads) {
      int place = from + t;
      if (a.causal) {
        // t: the number of this sequence's tiles that see less. In the list they follow the group's
        // tiles that see more, and those of earlier sequences that see as much.
        const int more =
            first_place(begin, end, [&](int r) { return start[r + 1] - start[r] <= t + 1; });
        place = start[more] - (more - begin) * (t + 1) + rank - begin;
      }
      a.list->items()[earlier + place] = {.tile = a.causal && a.of_keys ? tiles - 1 - t : t,
                                          .sequence = first + s,
                                          .q_begin = q.x,
                                          .queries = q.y,
                                          .k_begin = k.x,
                                          .keys = k.y,
                                          .contexts = k.z,
                                          .targets = k.w};
    }
  }
  if (threadIdx.x == 0 && first + count == a.batch) {
    a.list->count = earlier + start[count];
    a.list->taken = 0;
  }
}

SEQFUSE_HOST_DEVICE constexpr int list_slices(int64_t batch) {
  return static_cast<int>((batch + kOrderSlice - 1) / kOrderSlice);
}

// One block per slice.
__global__ void __launch_bounds__(kPrepareThreads)
    forward_list_kernel(const __grid_constant__ ListArguments list) {
  ops::sm80::begin_next_kernel();
  make_list(list, static_cast<int>(blockIdx.x));
}

}  // namespace seqfuse::ops::attention
