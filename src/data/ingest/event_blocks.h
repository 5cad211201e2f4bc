// Events in memory, grouped by user as they arrive: each user has a chain of blocks, so nothing
// needs sorting or moving later.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "data/read/times.h"

namespace seqfuse::data {

struct Event {
  int64_t time;   // together with fraction: a Time
  uint32_t user;  // codes of IdTable
  uint32_t item;
  int32_t action;
  uint32_t fraction = 0;  // fits in the padding

  Time point() const { return {time, fraction}; }
};
static_assert(sizeof(Event) == 24);

class EventBlocks {
 public:
  EventBlocks();

  // Appends the next events in file order, in pieces. bound: greater than all user codes. Runs on
  // all threads.
  void append(std::span<const std::span<const Event>> pieces, uint32_t bound);
  // Appends the user's events, in file order, to out. Thread-safe.
  void copy(uint32_t user, std::vector<Event>& out) const;
  // Drops all events; keeps the memory for new ones.
  void clear();

  // Bytes of the blocks in use.
  int64_t bytes() const;

 private:
  struct Kept {
    int64_t time;
    uint32_t item;
    int32_t action;
  };
  // The header of a block. Its events follow, then their fractions if any event has one: 16 bytes
  // per event if all times are integers, else 20.
  struct Block {
    Block* next;
    int32_t capacity;
    int16_t unused;  // free places in a block other than the last
    bool has_fractions;

    Kept* events() { return reinterpret_cast<Kept*>(this + 1); }
    const Kept* events() const { return reinterpret_cast<const Kept*>(this + 1); }
    uint32_t* fractions() { return reinterpret_cast<uint32_t*>(events() + capacity); }
    const uint32_t* fractions() const {
      return reinterpret_cast<const uint32_t*>(events() + capacity);
    }
  };
  struct Chain {
    Block* first = nullptr;
    Block* last = nullptr;
    int32_t free = 0;  // free places in the last block
  };
  // The memory of one thread's blocks.
  class Arena {
   public:
    Block* make_block(int32_t capacity, bool has_fractions);
    void clear();
    int64_t bytes() const { return bytes_; }

   private:
    struct Free {
      void operator()(char* slab) const;
    };
    std::vector<std::unique_ptr<char, Free>> slabs_;
    size_t slabs_used_ = 0;
    size_t left_ = 0;  // free bytes of the slab in use
    int64_t bytes_ = 0;
  };

  static void add(Chain& chain, const Event& event, Arena& arena);
  static void grow(Chain& chain, bool has_fractions, Arena& arena);

  std::vector<Chain> chains_;  // by user
  std::vector<Arena> arenas_;  // a power of two of them
};

}  // namespace seqfuse::data
