// Raw ids to dense codes, from many threads at once. An id is any text; one that is an int64 as it
// would be printed is kept as a number. Codes depend on the order of arrival; ranks, which the
// dataset stores, do not: integers first, ascending, then all other ids, bytewise.
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
  // A thread's memory of recent large numbers, so that most look-ups take no lock.
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

  // The id's code; a new one for a new id. Thread-safe, one cache a thread. Throws Error beyond
  // 2^32.
  uint32_t code(std::string_view id, Cache& cache);
  uint32_t code(int64_t id, Cache& cache);
  // Starts to load what code(id) will read.
  void prefetch(int64_t id) const;

  // The rest must not run beside code().
  uint32_t code_bound() const;            // every code is below; not every number below is a code
  int64_t size() const;                   // distinct ids
  std::string text(uint32_t code) const;  // the id as it stood in the source
  std::vector<uint32_t> sorted_codes() const;  // all codes, by rank

 private:
  static constexpr uint32_t kShards = 256;
  // Codes + 1 of the ids in [0, kDirectIds), which most data sets number their ids in: one look-up
  // without a lock. Pages are made as ids are seen; 128 MiB when all are.
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
    std::vector<int64_t> values;  // the number, or where in texts the id is
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
