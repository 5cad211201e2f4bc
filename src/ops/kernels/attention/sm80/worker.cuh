// The order of work: tiles of the longest sequences first, taken one by one by a grid that stays.
//
// A kernel before writes a record for each tile of each sequence, without the host knowing how many
// there are. A block asks for its next piece when it has almost done one, so that the answer is
// there in time, but not earlier: whoever reserves a piece while busy with another keeps idle
// blocks from it. Kernels without registers to spare ask at the start of a piece.
#pragma once

#include "ops/kernels/attention/sm80/rows.cuh"

namespace seqfuse::ops::attention::sm80 {

// Hands out (tile, head) to the blocks of a grid. All threads of a block call everything.
class Worker {
 public:
  struct Shared {
    WorkItem items[2];
    int heads[2];
    int total;
  };

  __device__ Worker(WorkList* list, int heads, Shared* shared)
      : list_(list), shared_(shared), heads_(heads) {
    // A list has room for what the grid begins with: its record need not wait for the count.
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
  // Of the piece before the last advance().
  __device__ const WorkItem& last_item() const { return shared_->items[slot_ ^ 1]; }
  __device__ int last_head() const { return shared_->heads[slot_ ^ 1]; }
  // Of the piece after the next advance().
  __device__ const WorkItem& next_item() const { return shared_->items[slot_ ^ 1]; }
  __device__ int next_head() const { return shared_->heads[slot_ ^ 1]; }
  __device__ bool done() const { return item().tile < 0; }

  // Asks for the number of the next piece, then for its record, which belongs to the caller's next
  // group of copies. Some time should pass between the two.
  __device__ void ask() {
    if (threadIdx.x == 0) next_ = gridDim.x + atomicAdd(&list_->taken, 1);
  }
  __device__ void fetch() {
    if (threadIdx.x == 0) copy_record(next_, slot_ ^ 1);
  }
  // At each tile t of [0, end) that a piece walks over: asks two tiles before the last. The record
  // is there after the last tile.
  __device__ void look_ahead(int t, int end) {
    if (t == max(0, end - 3)) ask();
    if (t == end - 1) fetch();
  }
  // The same, so that the record is there at the last of two or more tiles already. begin_piece():
  // before the first of count tiles; look_further_ahead(): at each tile t from first to end - 1.
  __device__ void begin_piece(int count) {
    if (count == 1 || count == 2) ask();
  }
  __device__ void look_further_ahead(int t, int first, int end) {
    if (t == end - 3) ask();
    if (t == max(first, end - 2)) fetch();
  }
  // After the copies have arrived and a barrier.
  __device__ void advance() { slot_ ^= 1; }
  // After the last of a piece's tiles, for kernels with one barrier a tile: when no warp is at work
  // on one any more, and the next piece is known. The last group of copies may be under way yet.
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
  int next_ = 0;  // of thread 0
};

}  // namespace seqfuse::ops::attention::sm80
