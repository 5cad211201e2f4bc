// How long one part of a program has been at work.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <utility>

namespace seqfuse {

// Seconds of wall time, summed over the threads that call time().
class BusyTime {
 public:
  // Calls work() and adds its time, also if it throws.
  template <class Work>
  decltype(auto) time(Work&& work) {
    const Timer timer(nanoseconds_);
    return std::forward<Work>(work)();
  }
  double seconds() const { return 1e-9 * static_cast<double>(nanoseconds_.load()); }

 private:
  using Clock = std::chrono::steady_clock;
  class Timer {
   public:
    explicit Timer(std::atomic<int64_t>& sum) : sum_(sum) {}
    ~Timer() { sum_ += std::chrono::nanoseconds(Clock::now() - start_).count(); }
    Timer(const Timer&) = delete;
    Timer& operator=(const Timer&) = delete;

   private:
    std::atomic<int64_t>& sum_;
    const Clock::time_point start_ = Clock::now();
  };

  std::atomic<int64_t> nanoseconds_ = 0;
};

}  // namespace seqfuse
