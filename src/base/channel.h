// A queue between two stages of a pipeline, each a thread.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

namespace seqfuse {

// All methods may be called from any thread.
template <class T>
class Channel {
 public:
  // capacity: values that wait in it before push() waits; 1 or more.
  explicit Channel(size_t capacity) : capacity_(capacity) {}

  // False, without the value, once the channel is closed.
  bool push(T value) {
    std::unique_lock lock(mutex_);
    space_.wait(lock, [&] { return closed_ || values_.size() < capacity_; });
    if (closed_) return false;
    values_.push_back(std::move(value));
    filled_.notify_one();
    return true;
  }

  // Waits for a value. Nothing once the channel is closed and empty.
  std::optional<T> pop() {
    std::unique_lock lock(mutex_);
    filled_.wait(lock, [&] { return closed_ || !values_.empty(); });
    if (values_.empty()) return std::nullopt;
    std::optional<T> value(std::move(values_.front()));
    values_.pop_front();
    space_.notify_one();
    return value;
  }

  // By the side that pushes: nothing more comes. By the side that pops: nothing more is wanted.
  void close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    space_.notify_all();
    filled_.notify_all();
  }

 private:
  const size_t capacity_;
  std::mutex mutex_;
  std::condition_variable space_, filled_;
  std::deque<T> values_;
  bool closed_ = false;
};

}  // namespace seqfuse
