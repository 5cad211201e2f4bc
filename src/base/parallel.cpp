#include "base/parallel.h"

#include <sched.h>

#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#ifdef _OPENMP
#include <omp.h>
#endif

namespace seqfuse {
namespace {

int available_cpus() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1U, std::thread::hardware_concurrency());
}

std::atomic<int> thread_limit{0};
thread_local bool inside_parallel_loop = false;

// Hands out tasks; keeps the first exception.
struct TaskQueue {
  int64_t tasks;
  void (*call)(void*, int64_t);
  void* context;
  std::atomic<int64_t> next{0};
  std::exception_ptr failure;
  std::mutex failure_mutex;

  void drain() {
    const bool outer = inside_parallel_loop;
    inside_parallel_loop = true;
    try {
      for (int64_t t; (t = next.fetch_add(1, std::memory_order_relaxed)) < tasks;) call(context, t);
    } catch (...) {
      next.store(tasks, std::memory_order_relaxed);
      const std::lock_guard lock(failure_mutex);
      if (!failure) failure = std::current_exception();
    }
    inside_parallel_loop = outer;
  }
};

}  // namespace

int num_threads() {
  const int limit = thread_limit.load(std::memory_order_relaxed);
  if (limit > 0) return limit;
  static const int cpus = available_cpus();
  return cpus;
}

void set_num_threads(int threads) {
  thread_limit.store(std::max(1, threads));
}

void detail::run_tasks(int64_t tasks, void (*call)(void*, int64_t), void* context) {
  const int threads = static_cast<int>(std::min<int64_t>(num_threads(), tasks));
  if (threads <= 1 || inside_parallel_loop) {
    for (int64_t t = 0; t < tasks; ++t) call(context, t);
    return;
  }
  TaskQueue queue{
      .tasks = tasks, .call = call, .context = context, .failure = {}, .failure_mutex = {}};
#ifdef _OPENMP
#pragma omp parallel num_threads(threads)
  queue.drain();
#else
  std::vector<std::jthread> workers;
  for (int i = 1; i < threads; ++i) workers.emplace_back([&queue] { queue.drain(); });
  queue.drain();
  workers.clear();  // joins
#endif
  if (queue.failure) std::rethrow_exception(queue.failure);
}

}  // namespace seqfuse
