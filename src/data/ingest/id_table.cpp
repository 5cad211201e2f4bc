#include "data/ingest/id_table.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "base/parallel.h"
#include "data/read/field_values.h"

namespace seqfuse::data {
namespace {

// The finaliser of SplitMix64: a bijection that spreads consecutive ids.
uint64_t mix(int64_t id) {
  uint64_t x = static_cast<uint64_t>(id) + 0x9E3779B97F4A7C15;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

}  // namespace

template <class Equal, class Append>
uint32_t IdTable::Shard::find_or_add(uint64_t hash, const Equal& equal, const Append& append) {
  if (values.size() * 10 >= slots.size() * 7) grow();
  const uint64_t mask = slots.size() - 1;
  const uint64_t tag = hash & 0xFFFFFFFF00000000;
  for (uint64_t i = (hash >> 8) & mask;; i = (i + 1) & mask) {
    const uint64_t slot = slots[i];
    if (slot == 0) {
      const auto entry = static_cast<uint32_t>(values.size());
      SEQFUSE_CHECK(entry < UINT32_MAX / kShards, "more than 2^32 distinct ids in one column");
      append();
      slots[i] = tag | (entry + 1);
      return entry;
    }
    const auto entry = static_cast<uint32_t>(slot) - 1;
    if ((slot & 0xFFFFFFFF00000000) == tag && equal(entry)) return entry;
  }
}

void IdTable::Shard::grow() {
  std::vector<uint64_t> larger(std::max<size_t>(16, slots.size() * 2));
  const uint64_t mask = larger.size() - 1;
  for (const uint64_t slot : slots) {
    if (slot == 0) continue;
    const auto entry = static_cast<uint32_t>(slot) - 1;
    const uint64_t hash =
        is_text[entry] ? hash64(texts[static_cast<size_t>(values[entry])]) : mix(values[entry]);
    uint64_t i = (hash >> 8) & mask;
    while (larger[i] != 0) i = (i + 1) & mask;
    larger[i] = slot;
  }
  slots = std::move(larger);
}

IdTable::Directory::~Directory() {
  for (const auto& page : pages_) delete page.load();
}

std::atomic<uint32_t>& IdTable::Directory::operator[](int64_t id) {
  std::atomic<Page*>& slot = pages_[static_cast<size_t>(id / kPage)];
  Page* page = slot.load(std::memory_order_acquire);
  if (page == nullptr) [[unlikely]] {
    auto made = std::make_unique<Page>();
    if (slot.compare_exchange_strong(page, made.get())) page = made.release();
  }
  return (*page)[static_cast<size_t>(id % kPage)];
}

void IdTable::prefetch(int64_t id) const {
  if (id >= 0 && id < kDirectIds) __builtin_prefetch(&(*direct_)[id]);
}

uint32_t IdTable::code(int64_t id, Cache& cache) {
  if (id >= 0 && id < kDirectIds) {
    std::atomic<uint32_t>& entry = (*direct_)[id];
    uint32_t code_plus_1 = entry.load(std::memory_order_relaxed);
    if (code_plus_1 == 0) {
      code_plus_1 = add_number(id, mix(id)) + 1;
      entry.store(code_plus_1, std::memory_order_relaxed);
    }
    return code_plus_1 - 1;
  }
  const uint64_t hash = mix(id);
  Cache::Slot& slot = cache.slots_[hash % Cache::kSlots];
  if (slot.number != id || slot.code == UINT32_MAX) slot = {id, add_number(id, hash)};
  return slot.code;
}

uint32_t IdTable::code(std::string_view id, Cache& cache) {
  if (const auto number = parse_canonical_int64(id)) return code(*number, cache);
  return add_text(id);
}

uint32_t IdTable::add_number(int64_t id, uint64_t hash) {
  const auto shard_index = static_cast<uint32_t>(hash % kShards);
  Shard& shard = (*shards_)[shard_index];
  const std::lock_guard lock(shard.mutex);
  const uint32_t entry = shard.find_or_add(
      hash, [&](uint32_t e) { return !shard.is_text[e] && shard.values[e] == id; },
      [&] {
        shard.values.push_back(id);
        shard.is_text.push_back(false);
      });
  return entry * kShards + shard_index;
}

uint32_t IdTable::add_text(std::string_view id) {
  const uint64_t hash = hash64(id);
  const auto shard_index = static_cast<uint32_t>(hash % kShards);
  Shard& shard = (*shards_)[shard_index];
  const std::lock_guard lock(shard.mutex);
  const uint32_t entry = shard.find_or_add(
      hash,
      [&](uint32_t e) {
        return shard.is_text[e] && shard.texts[static_cast<size_t>(shard.values[e])] == id;
      },
      [&] {
        shard.values.push_back(static_cast<int64_t>(shard.texts.size()));
        shard.is_text.push_back(true);
        shard.texts.emplace_back(id);
      });
  return entry * kShards + shard_index;
}

uint32_t IdTable::code_bound() const {
  size_t longest = 0;
  for (const Shard& shard : *shards_) longest = std::max(longest, shard.values.size());
  return static_cast<uint32_t>(longest * kShards);
}

int64_t IdTable::size() const {
  size_t total = 0;
  for (const Shard& shard : *shards_) total += shard.values.size();
  return static_cast<int64_t>(total);
}

std::string IdTable::text(uint32_t code) const {
  const Shard& shard = (*shards_)[code % kShards];
  const int64_t value = shard.values[code / kShards];
  return shard.is_text[code / kShards] ? shard.texts[static_cast<size_t>(value)]
                                       : std::to_string(value);
}

std::vector<uint32_t> IdTable::sorted_codes() const {
  std::vector<std::pair<int64_t, uint32_t>> numbers;
  std::vector<std::pair<std::string_view, uint32_t>> texts;
  for (uint32_t s = 0; s < kShards; ++s) {
    const Shard& shard = (*shards_)[s];
    for (uint32_t entry = 0; entry < shard.values.size(); ++entry) {
      const uint32_t code = entry * kShards + s;
      if (shard.is_text[entry]) {
        texts.emplace_back(shard.texts[static_cast<size_t>(shard.values[entry])], code);
      } else {
        numbers.emplace_back(shard.values[entry], code);
      }
    }
  }
  // Sorted in pieces by all threads, then merged pairwise.
  const auto parallel_sort = [](auto& values) {
    const auto n = static_cast<int64_t>(values.size());
    int64_t length = std::max<int64_t>(int64_t{1} << 16, (n + 63) / 64);
    parallel_tasks((n + length - 1) / length, [&](int64_t piece) {
      std::sort(values.begin() + piece * length,
                values.begin() + std::min(n, (piece + 1) * length));
    });
    for (; length < n; length *= 2) {
      parallel_tasks((n + 2 * length - 1) / (2 * length), [&](int64_t pair) {
        const int64_t begin = pair * 2 * length;
        std::inplace_merge(values.begin() + begin, values.begin() + std::min(n, begin + length),
                           values.begin() + std::min(n, begin + 2 * length));
      });
    }
  };
  parallel_sort(numbers);
  parallel_sort(texts);
  std::vector<uint32_t> codes;
  codes.reserve(numbers.size() + texts.size());
  for (const auto& [number, code] : numbers) codes.push_back(code);
  for (const auto& [text, code] : texts) codes.push_back(code);
  return codes;
}

}  // namespace seqfuse::data
