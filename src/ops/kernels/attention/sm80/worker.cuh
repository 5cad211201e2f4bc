// Order of work: a persistent grid takes tiles one by one, those of the longest sequences first.
//
// A preceding kernel writes a record for each tile of each sequence; the host does not know how
// many there are. A block asks for its next piece when it has almost finished one: early enough for
// the answer to arrive, but no earlier, since a piece reserved by a busy block is withheld from
// idle ones. Kernels short of registers ask at the start of a piece.
#pragma once

#include "ops/kernels/attention/sm80/rows.cuh"

namespace seqfuse::ops::attention::sm80 {

// Hands out (tile, head) pairs to blocks. All threads of a block call all functions.
class Worker {
 public:
  struct Shared {
    WorkItem items[2];
    int heads[2];
    int total;
  };

  __device__ Worker(WorkList* list, int heads, Shared* shared)
      : list_(list), shared_(shared), heads_(heads) {
    // The list has room for the grid's first records, so read one without waiting for the count.
    if (threadIdx.x == 0) {
      copy_listed(blockIdx.x, 0);
      shared_->total = list_->count * heads_;
    }
    commit_copies();
    wait_copies<0>();
    if (threadIdx.x == 0 && static_cast<int>(blockIdx.x) >= shared_->total)
      shared_->items[0].tile = -1;
    __syncthreads();
  }

  __device__ const WorkItem& item() const { return shared_->items[slot_]; }
  __device__ int head() const { return shared_->heads[slot_]; }
  // The piece before the last advance().
  __device__ const WorkItem& last_item() const { return shared_->items[slot_ ^ 1]; }
  __device__ int last_head() const { return shared_->heads[slot_ ^ 1]; }
  // The piece after the next advance().
  __device__ const WorkItem& next_item() const { return shared_->items[slot_ ^ 1]; }
  __device__ int next_head() const { return shared_->heads[slot_ ^ 1]; }
  __device__ bool done() const { return item().tile < 0; }

  // ask() requests the number of the next piece, fetch() its record, which joins the caller's next
  // commit group. Leave some time between the two.
  __device__ void ask() {
    if (threadIdx.x == 0) next_ = gridDim.x + atomicAdd(&list_->taken, 1);
  }
  __device__ void fetch() {
    if (threadIdx.x == 0) copy_record(next_, slot_ ^ 1);
  }
  // Call for each tile t of [0, end) of a piece: asks two tiles before the last. The record is
  // there after the last tile.
  __device__ void look_ahead(int t, int end) {
    if (t == max(0, end - 3)) ask();
    if (t == end - 1) fetch();
  }
  // The same, with the record there by the last of two or more tiles. Call begin_piece() before the
  // first of count tiles and look_further_ahead() for each tile t from first to end - 1.
  __device__ void begin_piece(int count) {
    if (count == 1 || count == 2) ask();
  }
  __device__ void look_further_ahead(int t, int first, int end) {
    if (t == end - 3) ask();
    if (t == max(first, end - 2)) fetch();
  }
  // Call when the copies have arrived, after a barrier.
  __device__ void advance() { slot_ ^= 1; }
  // Call after a piece's last tile, in kernels with one barrier per tile: returns when no warp
  // works on a tile any more and the next piece is known. pending: the last commit group may still
  // be in flight.
  __device__ void end_piece(int count, bool pending = false) {
    if (count == 0) {
      __syncthreads();
      ask();
      fetch();
      commit_copies();
    }
    if (pending) {
      wait_copies<1>();
    } else {
      wait_copies<0>();
    }
    __syncthreads();
    advance();
  }

 private:
  __device__ void copy_record(int piece, int slot) {
    if (piece >= shared_->total) {
      shared_->items[slot].tile = -1;
      return;
    }
    copy_listed(piece, slot);
  }
  __device__ void copy_listed(int piece, int slot) {
    const WorkItem* from = list_->items() + piece / heads_;
    const uint32_t to = shared_address(&shared_->items[slot]);
    copy_async(to, from, true);
    copy_async(to + 16, reinterpret_cast<const char*>(from) + 16, true);
    shared_->heads[slot] = piece % heads_;
  }

  WorkList* list_;
  Shared* shared_;
  int heads_, slot_ = 0;
  int next_ = 0;  // valid in thread 0
};

}  // namespace seqfuse::ops::attention::sm80
