// Looking a key up takes eight lanes, each with 16 digests of a bucket; the second bucket is read only
// if the first does not have the key. So a key costs one or two lines of 128 bytes and a sector of
// keys, wherever in its bucket it is.
#pragma once

#include "ops/kernels/hash_table/hash_table.h"

namespace seqfuse::ops::hash_table {

constexpr int kLanes = 8;  // of a lookup

__device__ __forceinline__ int64_t length_of(int64_t count, const int64_t* limit) {
  return limit ? min(count, *limit) : count;
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

}  // namespace seqfuse::ops::hash_table
