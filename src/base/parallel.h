// Data-parallel loops on the machine's cores. The whole process has one pool: OpenMP, which
// libtorch also uses, so that the two never compete for cores; std::thread in builds without OpenMP
// (tsan).
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

namespace seqfuse {

// Threads a parallel loop may use; at least 1. Default: the CPUs this process may run on.
int num_threads();
void set_num_threads(int threads);

namespace detail {
// Runs call(context, task) once for each task in [0, tasks); tasks are handed out in order as
// threads become free. The first exception thrown by a task is rethrown here.
void run_tasks(int64_t tasks, void (*call)(void*, int64_t), void* context);
}  // namespace detail

// Runs body(task) for each task in [0, tasks), in parallel, handed out in order one at a time. For
// tasks of uneven cost, sort the longest first. Serial inside another parallel loop.
template <class Body>
void parallel_tasks(int64_t tasks, Body&& body) {
  using Plain = std::remove_reference_t<Body>;
  detail::run_tasks(
      tasks, [](void* context, int64_t task) { (*static_cast<Plain*>(context))(task); },
      const_cast<std::remove_const_t<Plain>*>(&body));
}

// Runs body(begin, end) on disjoint ranges that cover [0, n), each with at least grain elements,
// except the last. The ranges depend only on n and grain, not on the number of threads, so
// reductions that combine partial results in range order are reproducible.
template <class Body>
void parallel_for(int64_t n, int64_t grain, Body&& body) {
  if (n <= 0) return;
  constexpr int64_t kMaxRanges = 256;
  const int64_t length = std::max({grain, (n + kMaxRanges - 1) / kMaxRanges, int64_t{1}});
  parallel_tasks((n + length - 1) / length,
                 [&](int64_t range) { body(range * length, std::min(n, (range + 1) * length)); });
}

}  // namespace seqfuse
