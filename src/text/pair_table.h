// BPE merges by pair of token ids: an open-addressing hash table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace seqfuse::text {

struct Merge {
  int32_t rank = 0;    // lowest first
  int32_t result = 0;  // the id of the merged token
};

class PairTable {
 public:
  explicit PairTable(size_t pairs = 0) {
    size_t capacity = 16;
    while (capacity < 2 * pairs) capacity *= 2;
    slots_.resize(capacity);
  }

  // Adds or replaces. At most as many pairs as the constructor was told.
  void set(int32_t left, int32_t right, Merge merge) {
    Slot& slot = slots_[find_slot(key_of(left, right))];
    slot = {key_of(left, right), merge};
  }
  const Merge* find(int32_t left, int32_t right) const {
    const Slot& slot = slots_[find_slot(key_of(left, right))];
    return slot.key == kEmpty ? nullptr : &slot.merge;
  }

 private:
  static constexpr uint64_t kEmpty = ~0ULL;  // no pair: ids are not negative
  struct Slot {
    uint64_t key = kEmpty;
    Merge merge;
  };
  static uint64_t key_of(int32_t left, int32_t right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  // The slot of the key, or the empty slot to insert it in.
  size_t find_slot(uint64_t key) const {
    const size_t mask = slots_.size() - 1;
    size_t i = (key * 0x9E3779B97F4A7C15ULL >> 32) & mask;
    while (slots_[i].key != kEmpty && slots_[i].key != key) i = (i + 1) & mask;
    return i;
  }

  std::vector<Slot> slots_;
};

}  // namespace seqfuse::text
