// A hash table from int64 keys to slots; the rows of the slots are the caller's (rows.h).
//
// Arrays of `slots` = 128 buckets; a table is empty if all digests are 0:
//
//   digests   uint8   0: empty slot
//   keys      int64
//   scores    int64   the lowest is evicted first (rule.h)
//   touched   uint32  the number of the last insert call that had the key; 0: none
//   counters  int64 [kCounters]
//
// Keys of a batch must differ from each other, except in find and erase. `limit`: on a GPU the
// number of keys may be known there only; count is then an upper bound, and outputs beyond the
// limit are not written.
//
// Determinism: find and erase: yes. insert, CPU: keys are inserted one after the other, so the
// result is the same for any number of threads. insert, CUDA: with in_order, the same table as on
// the CPU, bit for bit; else keys are inserted at the same time: slots, and which keys are evicted,
// depend on timing, but which keys are in the table does not as long as none is evicted or fails.
// Memory: none. Errors: the binding checks the arguments.
#pragma once

#include <cstdint>

#include "ops/kernels/common/cuda_api.h"
#include "ops/kernels/hash_table/rule.h"

namespace seqfuse::ops::hash_table {

enum Counter : int {
  kSize,     // keys in the table
  kFailed,   // keys that found no place
  kEvicted,  // keys evicted
  kEarly,    // of these, before the table had as many keys as its capacity
  kListed,   // entries in the list of evicted keys, including those beyond its end
  kCounters
};

struct View {
  uint8_t* digests;
  int64_t* keys;
  int64_t* scores;
  uint32_t* touched;
  int64_t* counters;
  int64_t buckets;
  int64_t capacity;  // keys at most
};

struct Find {
  View table;
  const int64_t* keys;  // [count]
  int64_t count;
  const int64_t* limit;  // null: count
  int64_t* slots;        // [count]: slot of each key; -1: not in the table
};

enum State : uint8_t {
  kAbsent,    // not in the table, and not allowed in
  kFound,     // was in the table
  kInserted,  // is now; its row is that of an evicted key or of nobody
  kNoPlace,   // counted in kFailed
};

struct Evicted {
  int64_t* keys;  // [room]; null: no list
  int64_t* scores;
  int64_t* slots;  // each now has another key; null: not wanted
  int64_t room;
};

struct Insert {
  View table;
  const int64_t* keys;  // [count], each once, unless leaders are given
  int64_t count;
  const int64_t* limit;    // null: count
  const int64_t* often;    // [count]: repeats in the batch; null: 1
  const int64_t* given;    // [count]: scores of Score::custom; null otherwise
  const uint8_t* allowed;  // [count]: 0: if new, leave it out; null: all may come in
  Score score;
  int64_t now;    // of all but lfu and custom
  uint32_t call;  // number of this call, from 1; keys of this call are not evicted by it
  bool evict;     // if the table is full; false: the key finds no place
  bool in_order;  // CUDA: insert one key after the other
  Evicted evicted;
  int64_t* slots;   // [count]: -1: not in the table
  uint8_t* states;  // [count]: State
  // CUDA: keys may be repeated, for scores lru and step, without often, given and allowed. Of equal keys
  // that were not in the table one, the leader, has a slot and a state; the others are kAbsent.
  int64_t* leaders = nullptr;  // [count]: the leader of each key; itself for those that were there
  int32_t* claims = nullptr;   // [claim_slots(count)], to work with
  uint8_t* claimed = nullptr;  // [count], to work with
};

// A power of two, at least twice the keys.
inline constexpr int64_t claim_slots(int64_t count) {
  int64_t slots = 64;
  while (slots < 2 * count) slots *= 2;
  return slots;
}

struct Erase {
  View table;
  const int64_t* keys;  // [count]; those not in the table are ignored
  int64_t count;
  const int64_t* limit;    // null: count
  const uint8_t* allowed;  // [count]: 0: leave it; null: erase all
};

void find_cpu(const Find& params);
void insert_cpu(const Insert& params);
void erase_cpu(const Erase& params);

#ifdef SEQFUSE_CUDA_API
// Enqueue on the current device's stream; no allocation, no synchronisation.
cudaError_t find_cuda(const Find& params, cudaStream_t stream);
cudaError_t insert_cuda(const Insert& params, cudaStream_t stream);
cudaError_t erase_cuda(const Erase& params, cudaStream_t stream);
#endif

}  // namespace seqfuse::ops::hash_table
