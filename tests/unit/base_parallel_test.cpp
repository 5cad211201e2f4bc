#include "base/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <vector>

namespace seqfuse::base_parallel_test {
namespace {

class Threads {  // restores the default afterwards
 public:
  explicit Threads(int n) : before_(num_threads()) { set_num_threads(n); }
  ~Threads() { set_num_threads(before_); }

 private:
  int before_;
};

TEST(Parallel, EveryIndexOnce) {
  for (const int threads : {1, 2, 5}) {
    const Threads limit(threads);
    for (const int64_t n : {0, 1, 2, 255, 256, 257, 100'003}) {
      std::vector<int> seen(static_cast<size_t>(n));
      parallel_for(n, 7, [&](int64_t begin, int64_t end) {
        ASSERT_LT(begin, end);
        for (int64_t i = begin; i < end; ++i) ++seen[static_cast<size_t>(i)];
      });
      EXPECT_EQ(std::accumulate(seen.begin(), seen.end(), int64_t{0}), n);
      EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), n);
    }
  }
}

TEST(Parallel, CutDoesNotDependOnThreads) {
  const auto cut = [](int threads) {
    const Threads limit(threads);
    std::vector<int64_t> ends(1000);
    parallel_for(1000, 3,
                 [&](int64_t begin, int64_t end) { ends[static_cast<size_t>(begin)] = end; });
    return ends;
  };
  EXPECT_EQ(cut(1), cut(2));
  EXPECT_EQ(cut(1), cut(7));
}

TEST(Parallel, FirstExceptionIsRethrown) {
  const Threads limit(3);
  std::atomic<int> ran{0};
  EXPECT_THROW(parallel_tasks(1000,
                              [&](int64_t task) {
                                ++ran;
                                if (task == 3) throw std::runtime_error("task 3");
                                std::this_thread::sleep_for(std::chrono::microseconds(100));
                              }),
               std::runtime_error);
  EXPECT_LT(ran, 1000) << "tasks are no longer handed out after a failure";
  parallel_tasks(10, [&](int64_t) { ++ran; });  // still usable
}

TEST(Parallel, NestedLoopsRunSerially) {
  const Threads limit(2);
  std::atomic<int> total{0};
  parallel_tasks(4, [&](int64_t) { parallel_tasks(5, [&](int64_t) { ++total; }); });
  EXPECT_EQ(total, 20);
}

TEST(Parallel, AtLeastOneThread) {
  const Threads limit(-3);
  EXPECT_EQ(num_threads(), 1);
}

}  // namespace
}  // namespace seqfuse::base_parallel_test
