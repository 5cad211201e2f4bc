// An insert first looks all keys up and then places the missing ones, a warp a key. A slot belongs to
// the warp that sets its `touched` to the number of this call, be it empty or that of an evicted key;
// so no lock is needed, and keys of this call are never evicted by it. Few enough warps run that the
// counts of a bucket that they compare are current: on a small table many would all choose the bucket
// that was emptiest at first.
#include <algorithm>

#include "ops/kernels/hash_table/hash_table.h"
#include "ops/kernels/hash_table/lookup.cuh"

namespace seqfuse::ops::hash_table {
namespace {

constexpr int kThreads = 256;
constexpr unsigned kAll = 0xFFFFFFFFu;
constexpr int64_t kMostWarps = 8192;    // that insert; more do not fit on a GPU
constexpr int64_t kBucketsPerWarp = 4;  // at least

using Wide = unsigned long long;

__device__ __forceinline__ void add(const View& table, Counter counter, int64_t n) {
  atomicAdd(reinterpret_cast<Wide*>(table.counters + counter), static_cast<Wide>(n));
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

// Of equal keys that are not in the table the one that is first to claim them comes in.
__global__ void __launch_bounds__(kThreads)
    claim_kernel(const __grid_constant__ Insert p, int64_t slots) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= length_of(p.count, p.limit)) return;
  int64_t leader = i;
  bool first = false;
  if (p.states[i] == kAbsent) {
    const int64_t key = p.keys[i];
    auto at = static_cast<int64_t>(mix(static_cast<uint64_t>(key))) & (slots - 1);
    while (true) {
      const int32_t before = atomicCAS(p.claims + at, -1, static_cast<int32_t>(i));
      first = before < 0;
      if (first) break;
      if (p.keys[before] == key) {
        leader = before;
        break;
      }
      at = (at + 1) & (slots - 1);
    }
  }
  p.leaders[i] = leader;
  p.claimed[i] = first ? 1 : 0;
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
    // All at once: memory answers one request as soon as four.
    uint4 touched[2] = {};
    longlong2 scores[2][2] = {};
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      if (side == sides) break;
      touched[side] = __ldcg(reinterpret_cast<const uint4*>(table.touched + parts[side].first));
      const auto* its = reinterpret_cast<const longlong2*>(table.scores + parts[side].first);
      scores[side][0] = __ldcg(its);
      scores[side][1] = __ldcg(its + 1);
    }
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      if (side == sides) break;
      const unsigned calls[4] = {touched[side].x, touched[side].y, touched[side].z,
                                 touched[side].w};
      const int64_t its[4] = {scores[side][0].x, scores[side][0].y, scores[side][1].x,
                              scores[side][1].y};
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        if ((parts[side].word >> (8 * k) & 0xFF) == 0 || calls[k] == call) continue;
        if (slot >= 0 && its[k] >= score) continue;
        score = its[k];
        slot = parts[side].first + k;
        rank = side * kSlots + lane * 4 + k;
        before = calls[k];
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

// Adds n to the number of keys, and returns how many of them are within the capacity; the others are
// taken off again. For one lane.
__device__ int reserve(const View& table, int n) {
  auto* size = reinterpret_cast<Wide*>(table.counters + kSize);
  const auto before = static_cast<int64_t>(atomicAdd(size, static_cast<Wide>(n)));
  const int64_t left = table.capacity - before;
  const int granted = left >= n ? n : left > 0 ? static_cast<int>(left) : 0;
  if (granted < n) add(table, kSize, granted - n);
  return granted;
}

// The whole warp places key i, which is not in the table. full: a place is not reserved for it. Returns
// whether a reserved place was not needed.
__device__ bool place_new(const Insert& p, int64_t i, bool full) {
  const View& table = p.table;
  const int lane = threadIdx.x % 32;
  const int64_t key = p.keys[i];
  const Place place = place_of(key, table.buckets);
  const int sides = place.bucket[1] == place.bucket[0] ? 1 : 2;
  const Part parts[2] = {Part(table, place.bucket[0]), Part(table, place.bucket[1])};
  int64_t slot = -1;
  bool evicted = false, spare = false;
  if (!full) {
    const int first = __reduce_add_sync(kAll, __popc(parts[0].empty()));
    const int second = __reduce_add_sync(kAll, __popc(parts[1].empty()));
    const int use = use_second(first, second) ? 1 : 0;
    slot = take_empty(table, parts[use], p.call);
    if (slot < 0 && sides == 2) slot = take_empty(table, parts[1 - use], p.call);
    spare = slot < 0;
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
  return spare;
}

__global__ void __launch_bounds__(kThreads) place_kernel(const __grid_constant__ Insert p) {
  const int64_t n = length_of(p.count, p.limit);
  const int64_t warps = int64_t{gridDim.x} * (blockDim.x / 32);
  const int64_t warp = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) / 32;
  const int lane = threadIdx.x % 32;
  for (int64_t base = warp * 32; base < n; base += warps * 32) {
    const int64_t i = base + lane;
    const bool wanted = i < n && p.states[i] == kAbsent && (!p.allowed || p.allowed[i]);
    unsigned lanes = __ballot_sync(kAll, wanted);
    // All warps count keys in one place, so they do it for many at a time; in order for each, since
    // what a key that finds no place leaves is the next one's.
    const int together = p.in_order ? 1 : 32;
    int reserved = 0, granted = 0, spare = 0;
    for (; lanes; lanes &= lanes - 1) {
      if (reserved == 0) {
        reserved = min(together, __popc(lanes));
        if (lane == 0) granted = reserve(p.table, reserved);
        granted = __shfl_sync(kAll, granted, 0);
      }
      if (place_new(p, base + __ffs(lanes) - 1, granted <= 0)) ++spare;
      --reserved;
      --granted;
      if (reserved == 0 && spare > 0) {
        if (lane == 0) add(p.table, kSize, -spare);
        spare = 0;
      }
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
  cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess) return error;
  Insert places = params;
  if (params.leaders) {
    const int64_t slots = claim_slots(params.count);
    error =
        cudaMemsetAsync(params.claims, 0xFF, static_cast<size_t>(slots) * sizeof(int32_t), stream);
    if (error != cudaSuccess) return error;
    const auto blocks = static_cast<unsigned>((params.count + kThreads - 1) / kThreads);
    claim_kernel<<<blocks, kThreads, 0, stream>>>(params, slots);
    error = cudaGetLastError();
    if (error != cudaSuccess) return error;
    places.allowed = params.claimed;
  }
  int64_t warps = 1;
  if (!params.in_order) {
    warps = std::clamp<int64_t>(params.table.buckets / kBucketsPerWarp, 1, kMostWarps);
    warps = std::min(warps, (params.count + 31) / 32);
  }
  const auto threads = static_cast<unsigned>(32 * std::min<int64_t>(warps, kThreads / 32));
  const auto blocks = static_cast<unsigned>((warps * 32 + threads - 1) / threads);
  place_kernel<<<blocks, threads, 0, stream>>>(places);
  return cudaGetLastError();
}

cudaError_t erase_cuda(const Erase& params, cudaStream_t stream) {
  if (params.count == 0) return cudaSuccess;
  erase_kernel<<<lookup_blocks(params.count), kThreads, 0, stream>>>(params);
  return cudaGetLastError();
}

}  // namespace seqfuse::ops::hash_table
