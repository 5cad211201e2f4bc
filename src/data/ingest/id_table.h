// Maps raw ids to dense codes, from many threads at once. An id is any text; a canonical int64 is
// stored as a number. Codes depend on the order of arrival. Ranks, which the dataset stores, do
// not: integers first, ascending, then all other ids, bytewise.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace seqfuse::data {

class IdTable {
 public:
  // A thread's cache of recent large numbers, so that most look-ups take no lock.
  class Cache {
   public:
    Cache() : slots_(kSlots) {}

   private:
    friend class IdTable;
    static constexpr size_t kSlots = size_t{1} << 14;
    struct Slot {
      int64_t number = 0;
      uint32_t code = UINT32_MAX;
    };
    std::vector<Slot> slots_;
  };

  // The id's code; a new one for a new id. Thread-safe with one cache per thread. Throws Error
  // beyond 2^32.
  uint32_t code(std::string_view id, Cache& cache);
  uint32_t code(int64_t id, Cache& cache);
  // Prefetches the memory that code(id) will read.
  void prefetch(int64_t id) const;

  // The methods below must not run concurrently with code().
  uint32_t code_bound() const;                 // greater than every code; codes may have gaps
  int64_t size() const;                        // distinct ids
  std::string text(uint32_t code) const;       // the id as in the source
  std::vector<uint32_t> sorted_codes() const;  // all codes, by rank

 private:
  static constexpr uint32_t kShards = 256;
  // Codes + 1 of the ids in [0, kDirectIds), the range of most datasets: one look-up without a
  // lock. Pages are allocated on demand; 128 MiB in total.
  static constexpr int64_t kDirectIds = int64_t{1} << 25, kPage = int64_t{1} << 12;
  using Page = std::array<std::atomic<uint32_t>, kPage>;
  class Directory {
   public:
    ~Directory();
    std::atomic<uint32_t>& operator[](int64_t id);

   private:
    std::array<std::atomic<Page*>, kDirectIds / kPage> pages_{};
  };
  std::unique_ptr<Directory> direct_ = std::make_unique<Directory>();

  // Open addressing: a slot holds the hash's upper half and the entry's number + 1.
  struct Shard {
    std::mutex mutex;
    std::vector<uint64_t> slots;
    std::vector<int64_t> values;  // the number, or the id's position in texts
    std::vector<bool> is_text;
    std::vector<std::string> texts;

    template <class Equal, class Append>
    uint32_t find_or_add(uint64_t hash, const Equal& equal, const Append& append);
    void grow();
  };
  std::unique_ptr<std::array<Shard, kShards>> shards_ =
      std::make_unique<std::array<Shard, kShards>>();

  uint32_t add_number(int64_t id, uint64_t hash);
  uint32_t add_text(std::string_view id);
};

}  // namespace seqfuse::data
