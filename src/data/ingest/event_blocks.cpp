#include "data/ingest/event_blocks.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <new>

#include "base/parallel.h"

namespace seqfuse::data {
namespace {

// Slabs are first touched piece by piece; without huge pages, the page faults per 4 KiB would cost
// more than the copy.
constexpr size_t kSlabBytes = size_t{1} << 23, kHugePage = size_t{1} << 21;
// Chain blocks double in size from the first value to the second: little waste for short histories,
// few blocks for long ones.
constexpr int32_t kFirstBlock = 3, kLargestBlock = 255;
constexpr unsigned kMostArenas = 8;

}  // namespace

void EventBlocks::Arena::Free::operator()(char* slab) const {
  std::free(slab);
}

EventBlocks::Block* EventBlocks::Arena::make_block(int32_t capacity, bool has_fractions) {
  static_assert(sizeof(Block) == 16 && sizeof(Kept) == 16);
  const auto events = static_cast<size_t>(capacity);
  const size_t fractions = has_fractions ? (events + events % 2) * sizeof(uint32_t) : 0;
  const size_t bytes = sizeof(Block) + events * sizeof(Kept) + fractions;
  if (left_ < bytes) {
    if (slabs_used_ == slabs_.size()) {
      auto* slab = static_cast<char*>(std::aligned_alloc(kHugePage, kSlabBytes));
      if (slab == nullptr) throw std::bad_alloc();
      madvise(slab, kSlabBytes, MADV_HUGEPAGE);  // failure is harmless
      slabs_.emplace_back(slab);
    }
    ++slabs_used_;
    left_ = kSlabBytes;
  }
  char* place = slabs_[slabs_used_ - 1].get() + (kSlabBytes - left_);
  left_ -= bytes;
  bytes_ += static_cast<int64_t>(bytes);
  return new (place) Block{nullptr, capacity, 0, has_fractions};
}

void EventBlocks::Arena::clear() {
  slabs_used_ = 0;
  left_ = 0;
  bytes_ = 0;
}

EventBlocks::EventBlocks()
    : arenas_(std::bit_floor(std::min(static_cast<unsigned>(num_threads()), kMostArenas))) {}

void EventBlocks::grow(Chain& chain, bool has_fractions, Arena& arena) {
  Block* last = chain.last;
  const int32_t capacity =
      last == nullptr ? kFirstBlock : std::min(2 * last->capacity + 1, kLargestBlock);
  Block* block = arena.make_block(capacity, has_fractions);
  if (last != nullptr) last->unused = static_cast<int16_t>(chain.free);
  (last == nullptr ? chain.first : last->next) = block;
  chain.last = block;
  chain.free = capacity;
}

void EventBlocks::add(Chain& chain, const Event& event, Arena& arena) {
  if (chain.free == 0) {
    const bool had_fractions = chain.last != nullptr && chain.last->has_fractions;
    grow(chain, had_fractions || event.fraction != 0, arena);
  } else if (event.fraction != 0 && !chain.last->has_fractions) {
    grow(chain, true, arena);
  }
  Block& block = *chain.last;
  const int32_t place = block.capacity - chain.free--;
  block.events()[place] = {event.time, event.item, event.action};
  if (block.has_fractions) block.fractions()[place] = event.fraction;
}

void EventBlocks::append(std::span<const std::span<const Event>> pieces, uint32_t bound) {
  if (chains_.size() < bound) chains_.resize(bound);
  // Users are assigned in groups of eight, so that threads rarely write to the same cache line.
  const size_t mask = arenas_.size() - 1;
  parallel_tasks(static_cast<int64_t>(arenas_.size()), [&](int64_t a) {
    Arena& arena = arenas_[static_cast<size_t>(a)];
    for (const auto events : pieces) {
      for (const Event& event : events) {
        if (((event.user >> 3) & mask) == static_cast<size_t>(a))
          add(chains_[event.user], event, arena);
      }
    }
  });
}

void EventBlocks::copy(uint32_t user, std::vector<Event>& out) const {
  if (user >= chains_.size()) return;
  const Chain& chain = chains_[user];
  for (const Block* block = chain.first; block != nullptr; block = block->next) {
    const int32_t size = block->capacity - (block == chain.last ? chain.free : block->unused);
    for (int32_t i = 0; i < size; ++i) {
      const Kept& kept = block->events()[i];
      const uint32_t fraction = block->has_fractions ? block->fractions()[i] : 0;
      out.push_back({kept.time, user, kept.item, kept.action, fraction});
    }
  }
}

void EventBlocks::clear() {
  std::fill(chains_.begin(), chains_.end(), Chain());
  for (Arena& arena : arenas_) arena.clear();
}

int64_t EventBlocks::bytes() const {
  int64_t total = 0;
  for (const Arena& arena : arenas_) total += arena.bytes();
  return total;
}

}  // namespace seqfuse::data
