// Temporary memory of one thread. It grows to the largest task and is then reused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <vector>

namespace seqfuse::ops::cpu {

class Scratch {
 public:
  // The calling thread's scratch, emptied.
  static Scratch& fresh() {
    thread_local Scratch scratch;
    scratch.reset();
    return scratch;
  }

  // Uninitialised, 64-byte aligned, valid until the thread's next fresh().
  template <class T>
  T* take(int64_t count) {
    const size_t bytes =
        (static_cast<size_t>(count) * sizeof(T) + kAlignment - 1) / kAlignment * kAlignment;
    if (blocks_.empty() || used_ + bytes > size_) {
      // Keep the full block, so that earlier pointers stay valid; reset() merges all blocks.
      total_ += used_;
      size_ = bytes > 2 * size_ ? bytes : 2 * size_;
      blocks_.push_back(allocate(size_));
      used_ = 0;
    }
    T* result = reinterpret_cast<T*>(blocks_.back().get() + used_);
    used_ += bytes;
    return result;
  }

 private:
  static constexpr size_t kAlignment = 64;
  struct Free {
    void operator()(std::byte* p) const { ::operator delete(p, std::align_val_t{kAlignment}); }
  };
  using Block = std::unique_ptr<std::byte, Free>;

  static Block allocate(size_t bytes) {
    return Block(static_cast<std::byte*>(::operator new(bytes, std::align_val_t{kAlignment})));
  }

  void reset() {
    if (blocks_.size() > 1) {
      size_ = total_ + used_;
      blocks_.clear();
      blocks_.push_back(allocate(size_));
    }
    used_ = total_ = 0;
  }

  std::vector<Block> blocks_;
  size_t size_ = 0, used_ = 0, total_ = 0;  // of the last block; used_ in earlier blocks
};

}  // namespace seqfuse::ops::cpu
