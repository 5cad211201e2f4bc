#include "ops/kernels/hash_table/hash_table.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/parallel.h"

namespace seqfuse::ops::hash_table {
namespace {

constexpr int64_t kGrain = 1024;  // keys of a task
constexpr int64_t kAhead = 8;     // keys whose buckets are on their way

int64_t length_of(int64_t count, const int64_t* limit) {
  return limit ? std::min(count, *limit) : count;
}

// Bit s of the result: slot s of the bucket has this digest.
struct SlotMask {
  uint64_t half[2];

  // The lowest slot, or -1.
  int first() const {
    if (half[0]) return std::countr_zero(half[0]);
    return half[1] ? 64 + std::countr_zero(half[1]) : -1;
  }
  int count() const { return std::popcount(half[0]) + std::popcount(half[1]); }
  template <class Visit>
  void each(Visit&& visit) const {
    for (int h = 0; h < 2; ++h) {
      for (uint64_t bits = half[h]; bits; bits &= bits - 1) visit(64 * h + std::countr_zero(bits));
    }
  }
};

SlotMask slots_with(const View& table, int64_t bucket, uint8_t digest) {
  constexpr uint64_t kOnes = 0x0101010101010101u, kLow = 0x7F7F7F7F7F7F7F7Fu;
  const uint64_t pattern = kOnes * digest;
  SlotMask mask{};
  for (int w = 0; w < kSlots / 8; ++w) {
    uint64_t word;
    std::memcpy(&word, table.digests + bucket * kSlots + 8 * w, 8);
    const uint64_t differs = word ^ pattern;
    // The top bit of a byte: it is zero.
    const uint64_t equal = ~(((differs & kLow) + kLow) | differs | kLow);
    // Collects the eight top bits in the top byte.
    const uint64_t bits = ((equal >> 7) * 0x0102040810204080u) >> 56;
    mask.half[w / 8] |= bits << (8 * (w % 8));
  }
  return mask;
}

int64_t find_in(const View& table, int64_t bucket, uint8_t digest, int64_t key) {
  const int64_t base = bucket * kSlots;
  int64_t slot = -1;
  slots_with(table, bucket, digest).each([&](int s) {
    if (table.keys[base + s] == key) slot = base + s;
  });
  return slot;
}

int64_t find(const View& table, int64_t key) {
  const Place place = place_of(key, table.buckets);
  const int64_t slot = find_in(table, place.bucket[0], place.digest, key);
  if (slot >= 0 || place.bucket[1] == place.bucket[0]) return slot;
  return find_in(table, place.bucket[1], place.digest, key);
}

void prefetch(const View& table, int64_t key) {
  const Place place = place_of(key, table.buckets);
  for (const int64_t bucket : place.bucket) {
    __builtin_prefetch(table.digests + bucket * kSlots);
    __builtin_prefetch(table.digests + bucket * kSlots + 64);
  }
}

// The slot with the lowest score in both buckets that no key of this call has; -1: none. Of equal
// scores the first slot of the first bucket.
int64_t victim(const View& table, const Place& place, uint32_t call) {
  int64_t best = -1;
  const int sides = place.bucket[1] == place.bucket[0] ? 1 : 2;
  for (int side = 0; side < sides; ++side) {
    const int64_t base = place.bucket[side] * kSlots;
    for (int64_t slot = base; slot < base + kSlots; ++slot) {
      if (table.digests[slot] == 0 || table.touched[slot] == call) continue;
      if (best < 0 || table.scores[slot] < table.scores[best]) best = slot;
    }
  }
  return best;
}

// The first empty slot of the bucket that a new key goes to (use_second); -1: both are full.
int64_t empty_slot(const View& table, const Place& place) {
  const SlotMask first = slots_with(table, place.bucket[0], 0),
                 second = slots_with(table, place.bucket[1], 0);
  const int side = use_second(first.count(), second.count()) ? 1 : 0;
  const int slot = side == 1 ? second.first() : first.first();
  return slot < 0 ? -1 : place.bucket[side] * kSlots + slot;
}

void insert_new(const Insert& p, int64_t i) {
  const View& table = p.table;
  const int64_t key = p.keys[i];
  const Place place = place_of(key, table.buckets);
  const bool full = table.counters[kSize] >= table.capacity;
  int64_t slot = full ? -1 : empty_slot(table, place);
  if (slot >= 0) {
    ++table.counters[kSize];
  } else {
    if (p.evict) slot = victim(table, place, p.call);
    if (slot < 0) {
      ++table.counters[kFailed];
      p.states[i] = kNoPlace;
      return;
    }
    ++table.counters[kEvicted];
    if (!full) ++table.counters[kEarly];
    const int64_t entry = table.counters[kListed]++;
    if (p.evicted.keys && entry < p.evicted.room) {
      p.evicted.keys[entry] = table.keys[slot];
      p.evicted.scores[entry] = table.scores[slot];
      if (p.evicted.slots) p.evicted.slots[entry] = slot;
    }
  }
  table.digests[slot] = place.digest;
  table.keys[slot] = key;
  table.scores[slot] =
      next_score(p.score, p.now, 0, p.often ? p.often[i] : 1, p.given ? p.given[i] : 0);
  table.touched[slot] = p.call;
  p.slots[i] = slot;
  p.states[i] = kInserted;
}

}  // namespace

void find_cpu(const Find& p) {
  parallel_for(length_of(p.count, p.limit), kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (i + kAhead < end) prefetch(p.table, p.keys[i + kAhead]);
      p.slots[i] = find(p.table, p.keys[i]);
    }
  });
}

void insert_cpu(const Insert& p) {
  const int64_t n = length_of(p.count, p.limit);
  const View& table = p.table;
  // Each key has its own slot, so tasks write different scores.
  parallel_for(n, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (i + kAhead < end) prefetch(table, p.keys[i + kAhead]);
      const int64_t slot = find(table, p.keys[i]);
      p.slots[i] = slot;
      p.states[i] = slot < 0 ? kAbsent : kFound;
      if (slot < 0) continue;
      table.touched[slot] = p.call;
      table.scores[slot] = next_score(p.score, p.now, table.scores[slot], p.often ? p.often[i] : 1,
                                      p.given ? p.given[i] : 0);
    }
  });
  for (int64_t i = 0; i < n; ++i) {
    if (i + kAhead < n && p.slots[i + kAhead] < 0) prefetch(table, p.keys[i + kAhead]);
    if (p.slots[i] < 0 && (!p.allowed || p.allowed[i])) insert_new(p, i);
  }
}

void erase_cpu(const Erase& p) {
  const int64_t n = length_of(p.count, p.limit);
  for (int64_t i = 0; i < n; ++i) {
    if (i + kAhead < n) prefetch(p.table, p.keys[i + kAhead]);
    if (p.allowed && !p.allowed[i]) continue;
    const int64_t slot = find(p.table, p.keys[i]);
    if (slot < 0) continue;
    p.table.digests[slot] = 0;
    p.table.scores[slot] = 0;
    p.table.touched[slot] = 0;
    --p.table.counters[kSize];
  }
}

}  // namespace seqfuse::ops::hash_table
