// Looking a key up takes eight lanes, each with 16 digests of a bucket; the second bucket is read only
// if the first does not have the key. So a key costs one or two lines of 128 bytes and a sector of
// keys, wherever in its bucket it is.
//
// An insert first looks all keys up and then places the missing ones, a warp a key. A slot belongs to
// the warp that sets its `touched` to the number of this call, be it empty or that of an evicted key;
// so no lock is needed, and keys of this call are never evicted by it. Few enough warps run that the
// counts of a bucket that they compare are current: on a small table many would all choose the bucket
// that was emptiest at first.
#include <algorithm>

#include "ops/kernels/hash_table/hash_table.h"

namespace seqfuse::ops::hash_table {
namespace {

constexpr int kThreads = 256;
constexpr int kLanes = 8;  // of a lookup
constexpr unsigned kAll = 0xFFFFFFFFu;
constexpr int64_t kMostWarps = 8192;    // that insert; more do not fit on a GPU
constexpr int64_t kBucketsPerWarp = 4;  // at least

using Wide = unsigned long long;

__device__ __forceinline__ int64_t length_of(int64_t count, const int64_t* limit) {
  return limit ? min(count, *limit) : count;
}

__device__ __forceinline__ void add(const View& table, Counter counter, int64_t n) {
  atomicAdd(reinterpret_cast<Wide*>(table.counters + counter), static_cast<Wide>(n));
}

// The slot of a key, for the lane that sees it; -1 for the others. Digests are used once, so they are
// read past L1.
__device__ __forceinline__ int64_t find_in(const View& table, int64_t bucket, uint8_t digest,
                                           int64_t key, int lane) {
  const uint4 words =
      __ldcg(reinterpret_cast<const uint4*>(table.digests + bucket * kSlots) + lane);
  const unsigned pattern = 0x01010101u * digest;
  const unsigned word[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
  for (int w = 0; w < 4; ++w) {
    unsigned equal = __vcmpeq4(word[w], pattern) & 0x01010101u;
    for (; equal; equal &= equal - 1) {
      const int64_t slot = bucket * kSlots + lane * 16 + w * 4 + (__ffs(equal) - 1) / 8;
      if (table.keys[slot] == key) return slot;
    }
  }
  return -1;
}

// Each group of eight lanes looks up key i. found(slot) runs on the lane that sees it, absent() on the
// first lane.
template <class Found, class Absent>
__device__ __forceinline__ void look_up(const View& table, int64_t key, Found&& found,
                                        Absent&& absent) {
  const int lane = threadIdx.x % kLanes;
  const unsigned group = 0xFFu << (threadIdx.x % 32 / kLanes * kLanes);
  const Place place = place_of(key, table.buckets);
  int64_t slot = find_in(table, place.bucket[0], place.digest, key, lane);
  bool any = __any_sync(group, slot >= 0);
  if (!any && place.bucket[1] != place.bucket[0]) {
    slot = find_in(table, place.bucket[1], place.digest, key, lane);
    any = __any_sync(group, slot >= 0);
  }
  if (slot >= 0) found(slot);
  if (!any && lane == 0) absent();
}

__device__ __forceinline__ int64_t group_of_grid() {
  return (int64_t{blockIdx.x} * kThreads + threadIdx.x) / kLanes;
}

__global__ void __launch_bounds__(kThreads) find_kernel(const __grid_constant__ Find p) {
  const int64_t i = group_of_grid();
  if (i >= length_of(p.count, p.limit)) return;
  look_up(p.table, p.keys[i], [&](int64_t slot) { p.slots[i] = slot; }, [&] { p.slots[i] = -1; });
}

__global__ void __launch_bounds__(kThreads) touch_kernel(const __grid_constant__ Insert p) {
  const int64_t i = group_of_grid();
  if (i >= length_of(p.count, p.limit)) return;
  look_up(
      p.table, p.keys[i],
      [&](int64_t slot) {
        p.slots[i] = slot;
        p.states[i] = kFound;
        p.table.touched[slot] = p.call;
        p.table.scores[slot] = next_score(p.score, p.now, p.table.scores[slot],
                                          p.often ? p.often[i] : 1, p.given ? p.given[i] : 0);
      },
      [&] {
        p.slots[i] = -1;
        p.states[i] = kAbsent;
      });
}

// The part of a bucket that a lane of a warp has: four slots.
struct Part {
  int64_t first;  // slot
  unsigned word;  // its digests

  __device__ Part(const View& table, int64_t bucket)
      : first(bucket * kSlots + threadIdx.x % 32 * 4),
        word(__ldcg(reinterpret_cast<const unsigned*>(table.digests + first))) {}
  // One bit in each byte that is empty.
  __device__ unsigned empty() const { return __vcmpeq4(word, 0) & 0x01010101u; }
};

__device__ __forceinline__ unsigned* digest_word(const View& table, int64_t slot) {
  return reinterpret_cast<unsigned*>(table.digests) + slot / 4;
}

__device__ __forceinline__ bool take(const View& table, int64_t slot, uint32_t before,
                                     uint32_t call) {
  return atomicCAS(table.touched + slot, before, call) == before;
}

// Takes the first empty slot of a bucket that no other warp has taken; -1 on all lanes if there is none.
__device__ int64_t take_empty(const View& table, const Part& part, uint32_t call) {
  unsigned empty = part.empty();
  const int lane = threadIdx.x % 32;
  while (true) {
    const unsigned lanes = __ballot_sync(kAll, empty != 0);
    if (lanes == 0) return -1;
    const int owner = __ffs(lanes) - 1;
    int64_t slot = -1;
    if (lane == owner) {
      const int64_t candidate = part.first + (__ffs(empty) - 1) / 8;
      empty &= empty - 1;
      const uint32_t before = __ldcg(table.touched + candidate);
      if (before != call && take(table, candidate, before, call)) slot = candidate;
    }
    slot = __shfl_sync(kAll, slot, owner);
    if (slot >= 0) return slot;
  }
}

// Takes the slot with the lowest score that no key of this call has, of equal scores the first one of
// the first bucket; -1 if there is none.
__device__ int64_t take_victim(const View& table, const Part (&parts)[2], int sides,
                               uint32_t call) {
  const int lane = threadIdx.x % 32;
  while (true) {
    int64_t score = kMaxScore, slot = -1;
    int rank = 2 * kSlots;  // the position in both buckets
    uint32_t before = 0;
    for (int side = 0; side < sides; ++side) {
      for (int k = 0; k < 4; ++k) {
        if ((parts[side].word >> (8 * k) & 0xFF) == 0) continue;
        const int64_t at = parts[side].first + k;
        const uint32_t touched = __ldcg(table.touched + at);
        if (touched == call) continue;
        const int64_t its = __ldcg(table.scores + at);
        if (slot >= 0 && its >= score) continue;
        score = its;
        slot = at;
        rank = side * kSlots + lane * 4 + k;
        before = touched;
      }
    }
    int best = rank;
    int64_t best_score = score;
    for (int step = 16; step > 0; step /= 2) {
      const int64_t other_score = __shfl_xor_sync(kAll, best_score, step);
      const int other = __shfl_xor_sync(kAll, best, step);
      if (other_score < best_score || (other_score == best_score && other < best)) {
        best_score = other_score;
        best = other;
      }
    }
    if (best == 2 * kSlots) return -1;
    int64_t taken = -1;
    if (best == rank && take(table, slot, before, call)) taken = slot;
    taken = __shfl_sync(kAll, taken, best % kSlots / 4);
    if (taken >= 0) return taken;
  }
}

// The whole warp places key i, which is not in the table.
__device__ void place_new(const Insert& p, int64_t i) {
  const View& table = p.table;
  const int lane = threadIdx.x % 32;
  const int64_t key = p.keys[i];
  const Place place = place_of(key, table.buckets);
  const int sides = place.bucket[1] == place.bucket[0] ? 1 : 2;
  bool full = false;
  if (lane == 0) {
    auto* size = reinterpret_cast<Wide*>(table.counters + kSize);
    full = static_cast<int64_t>(atomicAdd(size, Wide{1})) >= table.capacity;
    if (full) add(table, kSize, -1);
  }
  full = __shfl_sync(kAll, full, 0);
  const Part parts[2] = {Part(table, place.bucket[0]), Part(table, place.bucket[1])};
  int64_t slot = -1;
  bool evicted = false;
  if (!full) {
    const int first = __reduce_add_sync(kAll, __popc(parts[0].empty()));
    const int second = __reduce_add_sync(kAll, __popc(parts[1].empty()));
    const int use = second > first ? 1 : 0;
    slot = take_empty(table, parts[use], p.call);
    if (slot < 0 && sides == 2) slot = take_empty(table, parts[1 - use], p.call);
    if (slot < 0 && lane == 0) add(table, kSize, -1);
  }
  if (slot < 0 && p.evict) {
    slot = take_victim(table, parts, sides, p.call);
    evicted = slot >= 0;
  }
  if (lane == 0) {
    if (slot < 0) {
      add(table, kFailed, 1);
      p.states[i] = kNoPlace;
    } else {
      if (evicted) {
        add(table, kEvicted, 1);
        if (!full) add(table, kEarly, 1);
        const auto entry = static_cast<int64_t>(
            atomicAdd(reinterpret_cast<Wide*>(table.counters + kListed), Wide{1}));
        if (p.evicted.keys && entry < p.evicted.room) {
          p.evicted.keys[entry] = __ldcg(table.keys + slot);
          p.evicted.scores[entry] = __ldcg(table.scores + slot);
          if (p.evicted.slots) p.evicted.slots[entry] = slot;
        }
      }
      // Only this warp changes this byte, but others may change its neighbours.
      const unsigned shift = 8 * (slot % 4);
      unsigned* word = digest_word(table, slot);
      const unsigned before = __ldcg(word) >> shift & 0xFF;
      atomicXor(word, (before ^ place.digest) << shift);
      table.keys[slot] = key;
      table.scores[slot] =
          next_score(p.score, p.now, 0, p.often ? p.often[i] : 1, p.given ? p.given[i] : 0);
      p.slots[i] = slot;
      p.states[i] = kInserted;
    }
  }
  // In order, the next key of this warp sees this one.
  __threadfence();
  __syncwarp();
}

__global__ void __launch_bounds__(kThreads) place_kernel(const __grid_constant__ Insert p) {
  const int64_t n = length_of(p.count, p.limit);
  const int64_t warps = int64_t{gridDim.x} * (blockDim.x / 32);
  const int64_t warp = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) / 32;
  const int lane = threadIdx.x % 32;
  for (int64_t base = warp * 32; base < n; base += warps * 32) {
    const int64_t i = base + lane;
    const bool wanted = i < n && p.states[i] == kAbsent && (!p.allowed || p.allowed[i]);
    for (unsigned lanes = __ballot_sync(kAll, wanted); lanes; lanes &= lanes - 1) {
      place_new(p, base + __ffs(lanes) - 1);
    }
  }
}

__global__ void __launch_bounds__(kThreads) erase_kernel(const __grid_constant__ Erase p) {
  const int64_t i = group_of_grid();
  if (i >= length_of(p.count, p.limit) || (p.allowed && !p.allowed[i])) return;
  look_up(
      p.table, p.keys[i],
      [&](int64_t slot) {
        // Of equal keys in the batch one finds the digest still there.
        const unsigned byte = 0xFFu << (8 * (slot % 4));
        if ((atomicAnd(digest_word(p.table, slot), ~byte) & byte) == 0) return;
        p.table.scores[slot] = 0;
        p.table.touched[slot] = 0;
        add(p.table, kSize, -1);
      },
      [] {});
}

unsigned lookup_blocks(int64_t count) {
  return static_cast<unsigned>((count * kLanes + kThreads - 1) / kThreads);
}

}  // namespace

cudaError_t find_cuda(const Find& params, cudaStream_t stream) {
  if (params.count == 0) return cudaSuccess;
  find_kernel<<<lookup_blocks(params.count), kThreads, 0, stream>>>(params);
  return cudaGetLastError();
}

cudaError_t insert_cuda(const Insert& params, cudaStream_t stream) {
  if (params.count == 0) return cudaSuccess;
  touch_kernel<<<lookup_blocks(params.count), kThreads, 0, stream>>>(params);
  const cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess) return error;
  int64_t warps = 1;
  if (!params.in_order) {
    warps = std::clamp<int64_t>(params.table.buckets / kBucketsPerWarp, 1, kMostWarps);
    warps = std::min(warps, (params.count + 31) / 32);
  }
  const auto threads = static_cast<unsigned>(32 * std::min<int64_t>(warps, kThreads / 32));
  const auto blocks = static_cast<unsigned>((warps * 32 + threads - 1) / threads);
  place_kernel<<<blocks, threads, 0, stream>>>(params);
  return cudaGetLastError();
}

cudaError_t erase_cuda(const Erase& params, cudaStream_t stream) {
  if (params.count == 0) return cudaSuccess;
  erase_kernel<<<lookup_blocks(params.count), kThreads, 0, stream>>>(params);
  return cudaGetLastError();
}

}  // namespace seqfuse::ops::hash_table
