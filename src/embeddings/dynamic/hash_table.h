// A hash table of rows by int64 id, on a CPU or a GPU, that grows and evicts.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "embeddings/dynamic/row_cache.h"
#include "ops/torch/embedding/hash_table.h"

namespace seqfuse::embeddings {

using ops::hash_table::RowInit;
using ops::hash_table::Score;

struct HashTableOptions {
  std::string name = "table";          // in messages
  int64_t capacity = 0;                // rows at most
  int64_t initial_capacity = 1 << 16;  // rows allocated at first; at most capacity
  int64_t dim = 0;                     // weights of a row
  int64_t state = 0;                   // numbers after them, zeros in a new row
  Score score = Score::lru;
  bool evict = true;         // a full table evicts; false: a new id finds no place
  bool in_order = false;     // GPU: insert ids one after the other: slower, the same in every run
  int64_t list_evicted = 0;  // how many ids of evicted rows are kept for take_evicted()
  RowInit init;
  at::Device device = at::kCPU;
  // Rows in the device's memory; the others are in pinned host memory. cached: all rows are in host
  // memory, and device_rows of those in use also on the device. Keys are always on the device.
  int64_t device_rows = std::numeric_limits<int64_t>::max();
  bool cached = false;
};

// Rows that memory is allocated for next, of a table that has memory for `allocated` and needs `needed`
// rows: twice as many, or as many as it needs; all if that is more than half of the capacity, so that
// the old and the new memory together never hold more than 1.5 times the capacity.
int64_t grown_capacity(int64_t allocated, int64_t needed, int64_t capacity);

// Rows in the order of the slots, on the CPU.
struct HashTableContents {
  int64_t size() const { return ids.defined() ? ids.numel() : 0; }

  at::Tensor ids;      // int64 [n]
  at::Tensor rows;     // float32 [n, dim + state]
  at::Tensor scores;   // int64 [n]
  at::Tensor touched;  // int32 [n]: the number of the insert that last had the id
  // The slot of each row, so that a resumed table evicts the same rows. Ignored by a table of another
  // capacity. Undefined if unknown.
  at::Tensor slots;      // int64 [n]
  int64_t capacity = 0;  // allocated
  int64_t calls = 0;     // inserts so far
};

struct HashTableCounts {
  int64_t size = 0;     // rows
  int64_t failed = 0;   // ids of inserts that found no place
  int64_t evicted = 0;  // rows
  int64_t early = 0;    // rows evicted below the capacity
};

// Ids of a batch must differ from each other in insert, and may be repeated in find and erase. Empty
// batches are allowed. `limit` as in ops/kernels/hash_table/hash_table.h. What waits for a GPU says so.
//
// Not thread-safe; on a GPU calls are ordered by the current stream.
class HashTable {
 public:
  // Throws UsageError for options out of range. If memory does not suffice, here or while growing,
  // torch's error says what the table needs, and nothing changes.
  explicit HashTable(HashTableOptions options);

  const HashTableOptions& options() const { return options_; }
  int64_t capacity() const { return storage_.capacity; }  // allocated
  int64_t width() const { return options_.dim + options_.state; }
  int64_t bytes() const;                    // of the device's memory
  int64_t host_bytes() const;               // of the host's, for rows of a table on a GPU
  int64_t calls() const { return calls_; }  // of insert
  // Changes with every call that may move, add or remove rows: slots found before may be wrong then.
  int64_t changes() const { return changes_; }
  const at::Tensor& counters() const { return storage_.counters; }  // ops::hash_table::Counter

  // int64 [n]: the slots of ids [n]; -1 for ids without a row. Changes nothing. Slots are for the
  // methods below, not indices of HashTableContents.
  at::Tensor find(const at::Tensor& ids, const at::Tensor& limit = {}) const;

  struct Insert {
    at::Tensor ids;               // int64 [n], each once
    at::Tensor limit;             // int64 [1]; undefined: n
    at::Tensor often;             // int64 [n]: repeats in the batch; undefined: 1
    at::Tensor scores;            // int64 [n]: of Score::custom
    at::Tensor allowed;           // uint8 [n]: 0: find only; undefined: all may come in
    std::optional<int64_t> step;  // of Score::step
    bool list = false;  // return the evicted rows instead of keeping their ids for take_evicted()
    // Ids may be repeated: only if takes_repeated(), with neither of the above but step. Slots are then
    // those of all of them, states those of one of each.
    bool repeated = false;
  };
  struct Inserted {
    at::Tensor slots;   // int64 [n]; -1: no row
    at::Tensor states;  // uint8 [n]: ops::hash_table::State
    // With Insert::list: [room]; the first evicted_count[0] are used.
    at::Tensor evicted_ids, evicted_scores, evicted_rows, evicted_count;
  };
  // Finds the rows of ids, and gives those without one an initial row, in the order of the batch. Throws
  // UsageError, and changes nothing, as check_scores. May grow the table, which waits for a GPU. Below
  // options().capacity so does every insert whose n, added to those since the last wait, could fill
  // capacity(): the size and `limit` are read then, and the table grows only if they fill it.
  Inserted insert(const Insert& batch);
  // Whether insert() accepts repeated ids: on a GPU, at the full capacity, with scores lru and step, unless in
  // order or cached. It saves sorting the ids.
  bool takes_repeated() const;
  // Throws UsageError unless scores are given exactly for Score::custom, a step for Score::step.
  void check_scores(bool scores, bool step) const;

  // Of a cached table: brings the rows of ids [n], each once, into the cache, as far as they fit, so that a
  // later insert or find has them there. Ids without a row are ignored. Changes no row, score or order of
  // eviction. Other tables: nothing.
  void bring_into_cache(const at::Tensor& ids, const at::Tensor& limit);

  // Removes rows; others keep their slots.
  void erase(const at::Tensor& ids, const at::Tensor& limit = {}, const at::Tensor& allowed = {});
  // Removes all rows, and sets the counts to 0. Keeps the memory.
  void clear();

  // Weights of slots[index[i]], float32 [n, dim]; missing, [dim], where that is -1. index undefined: i.
  at::Tensor gather(const at::Tensor& slots, const at::Tensor& index,
                    const at::Tensor& missing) const;
  // Weights of ids [n], which may be repeated, float32 [n, dim]; missing for those without a row, which
  // are added to unknown, int64 [1]. Changes nothing else.
  at::Tensor look_up(const at::Tensor& ids, const at::Tensor& missing,
                     const at::Tensor& unknown) const;
  void update(const ops::hash_table::RowUpdate& update, const at::Tensor& slots,
              const at::Tensor& gradients, const at::Tensor& limit = {},
              const ops::hash_table::StepNumbers& step = {});
  // int64 [n]; 0 where slots [n] is -1.
  at::Tensor scores_of(const at::Tensor& slots) const;
  // Whole rows with the optimiser's state, float32 [n, width]; zeros where slots [n] is -1, which
  // write_rows leaves out.
  at::Tensor read_rows(const at::Tensor& slots) const;
  void write_rows(const at::Tensor& slots, const at::Tensor& rows);

  // These wait for a GPU.
  HashTableCounts counts() const;
  int64_t size() const { return counts().size; }
  // since: only rows that inserts from this number on had.
  HashTableContents contents(int64_t since = 0) const;
  // The parts of contents(): what it has without rows; the whole rows of such ids and slots [n], float32
  // [n, width], on the CPU.
  HashTableContents keys(int64_t since = 0) const;
  at::Tensor rows_of(const at::Tensor& ids, const at::Tensor& slots) const;
  // Replaces all rows, and sets the counts to 0. Throws DataError, and changes nothing, if they are more
  // than the capacity, are wider or narrower, an id occurs twice, the tensors differ in length, or
  // slots are not where their ids can be.
  void load(const HashTableContents& contents) { take(with(contents)); }
  // The parts of load, so that several tables are loaded or none: with makes a table that take moves in.
  HashTable with(const HashTableContents& contents) const;
  void take(HashTable loaded);
  // Gives the memory of a table without rows back, so that there is room for the one to be loaded.
  void shrink();
  // Throws if with() would throw, without allocating its memory.
  void check(const HashTableContents& contents) const { checked_digests(contents); }
  // For copies of a table in pieces; these do not wait. slots(): of HashTableContents. rows_in_slots: whole
  // rows of slots begin..end - 1, float32 [end - begin, width], on the device; anything where a slot is
  // empty. moves(): changes when rows come to other slots than before, unless they are evicted.
  int64_t slots() const { return storage_.slots(); }
  at::Tensor rows_in_slots(int64_t begin, int64_t end) const;
  int64_t moves() const { return moves_; }
  // Ids and scores [n] of rows evicted since the last call, oldest first, and how many more there
  // were than list_evicted.
  struct EvictedIds {
    at::Tensor ids, scores;
    int64_t left_out = 0;
  };
  EvictedIds take_evicted();

 private:
  at::Tensor homes_of(const at::Tensor& ids, const at::Tensor& limit) const;
  void make_room(int64_t ids, const at::Tensor& limit);
  void grow(int64_t capacity);
  at::Tensor insert_scored(const ops::hash_table::Storage& storage, const at::Tensor& ids,
                           const at::Tensor& scores) const;
  at::Tensor checked_digests(const HashTableContents& given) const;
  at::Tensor checked_slots(const HashTableContents& given) const;
  bool keeps_slots(const HashTableContents& given) const;
  // float32 [slots, stride], in one or two parts.
  struct Values {
    at::Tensor here, host;
  };
  ops::hash_table::Rows view_of(const Values& values) const;
  ops::hash_table::Rows view() const;  // of rows by slots as find and insert return them
  void copy_in(const Values& values, const at::Tensor& slots, const at::Tensor& rows) const;
  void list_evicted(const Inserted& batch);
  template <class Make>
  auto with_memory(int64_t capacity, Make&& make) const;
  ops::hash_table::Storage allocate(int64_t capacity) const;
  Values allocate_rows(const ops::hash_table::Storage& storage) const;
  at::TensorOptions floats() const;

  HashTableOptions options_;
  int64_t stride_ = 0;
  ops::hash_table::Storage storage_;
  Values values_;
  std::optional<RowCache> cache_;
  at::Tensor evicted_ids_, evicted_scores_;  // [list_evicted + 1]; the last one is never read
  int64_t calls_ = 0, changes_ = 0, moves_ = 0;
  int64_t size_at_most_ = 0;
};

}  // namespace seqfuse::embeddings
