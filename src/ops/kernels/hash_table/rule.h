// What the CPU and the GPU agree on about a hash table: where a key may lie, and how its score
// changes. For the host and for kernels.
//
// A table is an array of buckets of 128 slots. A key may lie in any slot of two buckets. A slot has
// a digest, one byte of the key's hash, so that one line of 128 bytes says which of a bucket's keys
// are worth reading. Digest 0 marks an empty slot; so every int64 is a valid key.
//
// There are enough buckets for 120 keys in each when the table is full. A new key goes to the first of
// its buckets while that has few keys, so that most are found there, else to the emptier one. The
// fullest bucket of a full table then has 123 to 125 keys: a table takes as many keys as its capacity
// says, and none is evicted before.
#pragma once

#include "base/fixed_width.h"
#include "ops/kernels/common/host_device.h"

namespace seqfuse::ops::hash_table {

inline constexpr int kSlots = 128;  // of a bucket
inline constexpr int kFill = 120;   // keys of a bucket when the table is full, on average

inline constexpr int kFew = 96;  // keys of a bucket that new keys fill before they look at another

// Whether a new key goes to its second bucket, by the empty slots of both.
SEQFUSE_HOST_DEVICE constexpr bool use_second(int empty_in_first, int empty_in_second) {
  return empty_in_second > empty_in_first && empty_in_first <= kSlots - kFew;
}

inline constexpr int64_t buckets_for(int64_t capacity) {
  return (capacity + kFill - 1) / kFill;
}

// The finaliser of splitmix64.
SEQFUSE_HOST_DEVICE constexpr uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

// The high half of a product: a uniform x becomes uniform in [0, n).
SEQFUSE_HOST_DEVICE uint64_t scaled(uint64_t x, uint64_t n) {
#ifdef __CUDA_ARCH__
  return __umul64hi(x, n);
#else
  return static_cast<uint64_t>((static_cast<unsigned __int128>(x) * n) >> 64);
#endif
}

struct Place {
  int64_t bucket[2];  // equal if there is only one
  uint8_t digest;     // 1..255
};

SEQFUSE_HOST_DEVICE Place place_of(int64_t key, int64_t buckets) {
  const uint64_t hash = mix(static_cast<uint64_t>(key) + 0x9E3779B97F4A7C15u);
  const uint64_t again = mix(hash + 0x9E3779B97F4A7C15u);
  const auto low = static_cast<uint8_t>(hash);
  Place place;
  place.digest = low == 0 ? 255 : low;
  place.bucket[0] = static_cast<int64_t>(scaled(hash, static_cast<uint64_t>(buckets)));
  place.bucket[1] = place.bucket[0];
  if (buckets > 1) {
    const auto step = static_cast<int64_t>(scaled(again, static_cast<uint64_t>(buckets - 1)));
    place.bucket[1] += 1 + step;
    if (place.bucket[1] >= buckets) place.bucket[1] -= buckets;
  }
  return place;
}

// Keys with the lowest score are evicted first.
enum class Score : int {
  lru,     // the number of the call that last had the key
  lfu,     // how often it was in a call's batch
  step,    // the caller's number at that time, such as the training step
  custom,  // given by the caller for each key
  // Both, as the two halves of the score: low 32 bits, and high ones, which decide first.
  time_frequency,  // the call; of equal ones how often
  frequency_time,  // how often; of equal ones the call
};

inline constexpr int64_t kLowHalf = 0xFFFFFFFF, kHighHalf = 0x7FFFFFFF;  // the largest halves
inline constexpr int64_t kMaxScore = 0x7FFFFFFFFFFFFFFF;

// The score of a key that is in a batch `count` times. old: its score before, 0 if it is new. now:
// the number of the call or the step. given: score of custom, or the score to set as it is.
SEQFUSE_HOST_DEVICE int64_t next_score(Score kind, int64_t now, int64_t old, int64_t count,
                                       int64_t given) {
  switch (kind) {
    case Score::lfu:
      return old > kMaxScore - count ? kMaxScore : old + count;
    case Score::custom:
      return given;
    case Score::time_frequency: {
      const int64_t often = (old & kLowHalf) + count;
      return now * (kLowHalf + 1) + (often > kLowHalf ? kLowHalf : often);
    }
    case Score::frequency_time: {
      const int64_t often = old / (kLowHalf + 1) + count;
      return (often > kHighHalf ? kHighHalf : often) * (kLowHalf + 1) + (now & kLowHalf);
    }
    default:
      return now;
  }
}

}  // namespace seqfuse::ops::hash_table
