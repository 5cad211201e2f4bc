// What runs before the kernels of HSTU attention: lists of work, masks of tiles, zeros for sums,
// and the tables of times.
#pragma once

#include <array>
#include <cmath>

#include "ops/kernels/attention/sm80/arguments.cuh"
#include "ops/kernels/attention/sm80/launch.h"
#include "ops/kernels/attention/sm80/mask.cuh"

// Of the CUDA runtime, as assert() calls it; declared here so that the compiler knows what follows.
extern "C" __host__ __device__ void __assert_fail(const char* assertion, const char* file,
                                                  unsigned line, const char* function) noexcept
    __attribute__((noreturn));

namespace seqfuse::ops {

struct ListArguments {
  const void* q_offsets;
  const void* k_offsets;
  bool int32_offsets;
  const int64_t* contexts;
  const int64_t* targets;
  int batch, total_queries, total_keys;
  int tile_rows, max_seqlen;  // tile_rows: a power of two
  bool of_keys;               // tiles of keys, not of queries
  bool causal;  // later tiles of queries see more, later tiles of keys are seen by less
  int groups;   // that sequences are cut into; those from last_group on are one
  int last_group;
  sm80::WorkList* list;
};

constexpr int kElementThreads = 256;

struct SequenceBounds {
  int64_t q_begin, q_end, k_begin, k_end, contexts, targets;

  __device__ __forceinline__ SequenceBounds(const ListArguments& a, int b)
      : q_begin(sm80::offset_at(a.q_offsets, a.int32_offsets, b)),
        q_end(sm80::offset_at(a.q_offsets, a.int32_offsets, b + 1)),
        k_begin(sm80::offset_at(a.k_offsets, a.int32_offsets, b)),
        k_end(sm80::offset_at(a.k_offsets, a.int32_offsets, b + 1)),
        contexts(a.contexts ? a.contexts[b] : 0),
        targets(a.targets ? a.targets[b] : 0) {}

  __device__ __forceinline__ sm80::WorkItem item(int b) const {
    sm80::WorkItem item{};
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

__device__ __forceinline__ sm80::WorkItem item_of(const ListArguments& a, int b) {
  return SequenceBounds(a, b).item(b);
}

// Where offsets and counts are read first. The host does not wait for the GPU to see them, so it is
// an assertion that fails, in the name of a kernel. It ends the kernel; the program gets
// cudaErrorAssert from its next call that waits. Nothing is read or written outside of tensors for
// a sequence that passes, whatever the others are.
__device__ __forceinline__ void check_sequence(const ListArguments& a, int b, const char* kernel) {
  const SequenceBounds bounds(a, b);
  const sm80::WorkItem item = bounds.item(b);
  const auto within = [](int value, int most) {  // [0, most], of which most is not negative
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
        "of q and k; of each sequence queries <= keys <= max_seqlen; and num_contexts >= 0 and "
        "num_targets >= 0 that are no more than its keys together",
        "hstu_attention", 0, kernel);
  }
}
__device__ __forceinline__ sm80::WorkItem checked_item_of(const ListArguments& a, int b,
                                                          const char* kernel) {
  check_sequence(a, b, kernel);
  return item_of(a, b);
}

constexpr int kPrepareThreads = 1024;
constexpr int kOrderSlice = kPrepareThreads;  // sequences that are put in order at a time
constexpr int kSequenceThreads = 8;           // that work on a sequence together

__device__ __forceinline__ int tiles_of(const ListArguments& a, const sm80::WorkItem& item) {
  return ((a.of_keys ? item.keys : item.queries) + a.tile_rows - 1) >> (31 - __clz(a.tile_rows));
}

// The first place of [from, to) where a condition holds that holds from some place on; else to.
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
// Sequences are in order of length. They are cut into groups, such that what the tiles of one group
// read fits in the second-level cache, and within a group the tiles that see most come first: a
// grid that works on small tiles in the end has all its blocks end together. Without groups, tiles
// that run at the same time would read different heads; without the order within them, the last
// sequence's largest tiles would begin when most blocks have nothing left to do.
// The last group may be two in one: with more small tiles left for the end, it comes out evener.
//
// For small batches this is a chain of latencies, of memory and of instructions that are run once,
// and so are in no cache. So memory is read once; arguments are all read at the beginning; loops
// over sequences and tiles are not unrolled, and there is no division of integers; and whoever
// finds a sequence's rank and place tells where groups begin and end, so that nobody has to search.
__device__ __forceinline__ void make_list(const ListArguments a, int slice) {
  __shared__ uint64_t size[kOrderSlice];  // tiles, then length of the other side; 0 behind the last
  // The records but for their tile: begin and length of the queries; the same of the keys, contexts
  // and targets.
  __shared__ int2 queries[kOrderSlice];
  __shared__ int4 keys[kOrderSlice];
  __shared__ int start[kOrderSlice + 1];                                 // by rank, as the next two
  __shared__ uint16_t sequence[kOrderSlice], group[kOrderSlice];         // of the slice
  __shared__ uint16_t group_begin[kOrderSlice], group_end[kOrderSlice];  // ranks
  __shared__ int earlier;  // tiles of the slices before
  constexpr unsigned kAll = 0xffffffffu;
  constexpr int kSequences = 32 / kSequenceThreads;  // of a warp
  const int lane = threadIdx.x % 32, part = threadIdx.x % kSequenceThreads;
  const int first = slice * kOrderSlice;
  const int count = min(kOrderSlice, a.batch - first);

  if (threadIdx.x == 0) earlier = 0;
  size[threadIdx.x] = 0;
  if (threadIdx.x < count) {
    const int s = threadIdx.x;
    const sm80::WorkItem item = item_of(a, first + s);
    size[s] = static_cast<uint64_t>(tiles_of(a, item)) << 32 |
              static_cast<uint32_t>(a.of_keys ? item.queries : item.keys);
    queries[s] = {item.q_begin, item.queries};
    keys[s] = {item.k_begin, item.keys, item.contexts, item.targets};
  }
  // By other threads than those, where the batch is small: beside them, so that nobody waits.
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
        // t: how many tiles of this sequence see less. Before it are the tiles of the group that
        // see more, and those that see as much, of the sequences before.
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

constexpr int list_slices(int64_t batch) {
  return static_cast<int>((batch + kOrderSlice - 1) / kOrderSlice);
}

// A block for each slice.
__global__ void __launch_bounds__(kPrepareThreads)
    forward_list_kernel(const __grid_constant__ ListArguments list) {
  sm80::begin_next_kernel();
  make_list(list, static_cast<int>(blockIdx.x));
}

// A warp makes the mask of a tile of queries.
__device__ __forceinline__ void make_tile_mask(const ListArguments& a,
                                               const sm80::MaskOptions& mask, int sequence,
                                               int tile, sm80::TileMask* masks) {
  const sm80::WorkItem item = checked_item_of(a, sequence, "masks of tiles");
  const int lane = threadIdx.x % 32, m0 = tile * a.tile_rows;
  if (m0 >= item.queries) return;
  const int end = min(item.queries, m0 + a.tile_rows), shift = item.keys - item.queries;
  sm80::TileMask all =
      sm80::combine_lanes(sm80::row_mask(mask, item, shift + min(m0 + lane, end - 1)));
  for (int row = m0 + 32; row < end; row += 32) {
    all = sm80::combine(
        all, sm80::combine_lanes(sm80::row_mask(mask, item, shift + min(row + lane, end - 1))));
  }
  if (lane == 0) masks[sm80::tile_base(item.q_begin, item.sequence, a.tile_rows) + tile] = all;
}

constexpr int kMostLists = 3;  // of a backward pass: of keys, of keys for biases, of queries
constexpr int kZerosOfThread = 8;
constexpr int kZerosOfBlock = kPrepareThreads * kZerosOfThread;

// What a backward pass needs before its kernels. Blocks are of lists, of masks and of zeros, in
// this order, side by side.
struct BackwardPreparation {
  ListArguments lists[kMostLists];
  int list_count;
  ListArguments tiles;  // of queries, that masks are made of
  int tiles_of_longest;
  sm80::MaskOptions mask;
  sm80::TileMask* masks;
  uint4* zeros;
  int64_t zero_count;

  __host__ __device__ int list_blocks() const { return list_count * list_slices(tiles.batch); }
  __host__ __device__ int64_t mask_blocks() const {
    constexpr int kWarps = kPrepareThreads / 32;
    return (int64_t{tiles_of_longest} * tiles.batch + kWarps - 1) / kWarps;
  }
  int64_t zero_blocks() const { return (zero_count + kZerosOfBlock - 1) / kZerosOfBlock; }
};

__global__ void __launch_bounds__(kPrepareThreads, 2)
    backward_prepare_kernel(const __grid_constant__ BackwardPreparation p) {
  int64_t block = blockIdx.x;
  if (block < p.list_blocks()) {
    const int slices = list_slices(p.tiles.batch), list = static_cast<int>(block) / slices;
    make_list(p.lists[list], static_cast<int>(block) - list * slices);
    return;
  }
  block -= p.list_blocks();
  if (block < p.mask_blocks()) {
    const int64_t tile = (block * kPrepareThreads + threadIdx.x) / 32;
    const int sequence = static_cast<int>(tile / p.tiles_of_longest);
    if (sequence >= p.tiles.batch) return;
    make_tile_mask(p.tiles, p.mask, sequence, static_cast<int>(tile % p.tiles_of_longest), p.masks);
    return;
  }
  block -= p.mask_blocks();
#pragma unroll
  for (int n = 0; n < kZerosOfThread; ++n) {
    const int64_t at = (block * kZerosOfThread + n) * kPrepareThreads + threadIdx.x;
    if (at < p.zero_count) p.zeros[at] = uint4{};
  }
}

// For attention that none of these kernels run.
__global__ void __launch_bounds__(kElementThreads)
    check_sequences_kernel(const __grid_constant__ ListArguments a) {
  const int b = static_cast<int>(blockIdx.x * kElementThreads + threadIdx.x);
  if (b < a.batch) check_sequence(a, b, "check of sequences");
}

// The smallest difference of each bucket and above, as float64 arithmetic gives it.
struct TimeEdges {
  uint64_t edge[sm80::kBuckets + 1];
};

inline const TimeEdges& time_edges() {
  static const TimeEdges edges = [] {
    TimeEdges e{};
    for (int bucket = 1; bucket <= sm80::kBuckets; ++bucket) {
      uint64_t below = 1, above = ~uint64_t{0};
      while (above - below > 1) {
        const uint64_t middle = below + (above - below) / 2;
        const bool reached = std::floor(std::log(static_cast<double>(middle)) / 0.301) >= bucket;
        (reached ? above : below) = middle;
      }
      e.edge[bucket] = above;
    }
    return e;
  }();
  return edges;
}

__global__ void __launch_bounds__(sm80::kTimeCells)
    time_tables_kernel(const __grid_constant__ TimeEdges edges, const float* weights, int buckets,
                       sm80::TimeTables* tables) {
  const int c = threadIdx.x;
  // The first whole number of the cell; small cells may have none, and are never asked for.
  const auto first = static_cast<uint64_t>(ceil(__hiloint2double((c << 18) + 0x3ff00000, 0)));
  const int bucket =
      first_place(0, sm80::kBuckets - 1, [&](int b) { return edges.edge[b + 1] > first; });
  const double edge = __ull2double_rn(edges.edge[bucket + 1]);
  tables->cells[c] = {static_cast<uint32_t>(__double2hiint(edge)), bucket};
  tables->edge_low[c] = static_cast<uint32_t>(__double2loint(edge));
  if (c <= sm80::kBuckets) tables->weights[c] = weights[min(c, buckets - 1)];
}

// Times since the first of each sequence; rows of the grid are sequences.
__global__ void __launch_bounds__(kElementThreads)
    times_kernel(ListArguments a, const int64_t* timestamps, const int64_t* request_times,
                 double* times, double* times_after) {
  const sm80::WorkItem item = checked_item_of(a, static_cast<int>(blockIdx.y), "times of keys");
  const int j = static_cast<int>(blockIdx.x * kElementThreads + threadIdx.x);
  if (j >= item.keys) return;
  const int64_t* t = timestamps + item.k_begin;
  const int64_t after = j + 1 < item.keys ? t[j + 1]
                        : request_times   ? request_times[item.sequence]
                                          : t[j];
  times[item.k_begin + j] = static_cast<double>(t[j] - t[0]);
  times_after[item.k_begin + j] = static_cast<double>(after - t[0]);
}

}  // namespace seqfuse::ops
