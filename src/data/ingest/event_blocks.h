// Events in memory, grouped by user as they arrive: each user has a chain of blocks, so that
// nothing is sorted or moved afterwards.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace seqfuse::data {

struct Event {
  int64_t time;   // kNoTime where the field was blank
  uint32_t user;  // codes of IdTable
  uint32_t item;
  int32_t action;
};
constexpr int64_t kNoTime = INT64_MIN;

class EventBlocks {
 public:
  EventBlocks();

  // The next events in file order, in pieces. bound: all codes of users are below. Runs on all
  // threads.
  void append(std::span<const std::span<const Event>> pieces, uint32_t bound);
  // Appends the user's events, in file order, to out. Thread-safe.
  void copy(uint32_t user, std::vector<Event>& out) const;
  // Forgets all events; keeps the memory for the next ones.
  void clear();

  // Of the blocks in use.
  int64_t bytes() const;

 private:
  struct Kept {
    int64_t time;
    uint32_t item;
    int32_t action;
  };
  struct Block {  // its events follow it
    Block* next;
    int64_t capacity;
    Kept* events() { return reinterpret_cast<Kept*>(this + 1); }
    const Kept* events() const { return reinterpret_cast<const Kept*>(this + 1); }
  };
  struct Chain {
    Block* first = nullptr;
    Block* last = nullptr;
    int64_t free = 0;  // of the last block
  };
  // The memory of one thread's blocks.
  class Arena {
   public:
    Block* make_block(int64_t capacity);
    void clear();
    int64_t bytes() const { return bytes_; }

   private:
    struct Free {
      void operator()(char* slab) const;
    };
    std::vector<std::unique_ptr<char, Free>> slabs_;
    size_t slabs_used_ = 0;
    size_t left_ = 0;  // bytes of the last used slab
    int64_t bytes_ = 0;
  };

  static void add(Chain& chain, const Event& event, Arena& arena);

  std::vector<Chain> chains_;  // by user
  std::vector<Arena> arenas_;  // a power of two of them
};

}  // namespace seqfuse::data
