#include "api/python/watch.h"

#include <chrono>
#include <utility>

namespace seqfuse::api {

void Watch::put(int64_t text, int64_t id) {
  {
    const std::lock_guard lock(mutex_);
    texts_.push_back(text);
    ids_.push_back(id);
  }
  came_.notify_one();
}

bool Watch::ended(int64_t text) const {
  const std::lock_guard lock(mutex_);
  return ended_.contains(text);
}

bool Watch::stopped() const {
  const std::lock_guard lock(mutex_);
  return stopped_;
}

std::tuple<std::vector<int64_t>, std::vector<int64_t>> Watch::take(double seconds) {
  std::unique_lock lock(mutex_);
  came_.wait_for(lock, std::chrono::duration<double>(seconds),
                 [&] { return !ids_.empty() || stopped_; });
  return {std::exchange(texts_, {}), std::exchange(ids_, {})};
}

void Watch::end_text(int64_t text) {
  const std::lock_guard lock(mutex_);
  ended_.insert(text);
}

void Watch::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  came_.notify_one();
}

}  // namespace seqfuse::api
