#include "embeddings/dynamic/memory_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>
#include <utility>

#ifdef SEQFUSE_HAS_CUDA
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime_api.h>
#endif

#include "base/progress.h"

namespace seqfuse::embeddings {
namespace {

constexpr int64_t kKeyBytes = 8 + 8 + 4 + 1;  // key, score, touched, digest
// Per row of the smaller table while it grows: its slot, id, score, place, new slot, touched and state.
constexpr int64_t kMovedBytes = 5 * 8 + 4 + 1;
constexpr int64_t kUnknown = std::numeric_limits<int64_t>::max();

std::string size_text(int64_t bytes) {
  return format_count(static_cast<double>(bytes)) + "B";
}

// The first number of a file; kUnknown if there is none, such as "max".
int64_t number_in(const char* path) {
  int64_t number = 0;
  return std::ifstream(path) >> number ? number : kUnknown;
}

int64_t inactive_file_pages() {
  std::ifstream file("/sys/fs/cgroup/memory.stat");
  std::string name;
  for (int64_t bytes = 0; file >> name >> bytes;) {
    if (name == "inactive_file") return bytes;
  }
  return 0;
}

int64_t free_on_host() {
  int64_t free = kUnknown;
  std::ifstream file("/proc/meminfo");
  std::string name, unit;
  for (int64_t kilobytes = 0; file >> name >> kilobytes; std::getline(file, unit)) {
    if (name == "MemAvailable:") free = kilobytes * 1024;
  }
  const int64_t limit = number_in("/sys/fs/cgroup/memory.max"),
                used = number_in("/sys/fs/cgroup/memory.current");
  if (limit == kUnknown || used == kUnknown) return free;
  return std::min(free, std::max<int64_t>(0, limit - used + inactive_file_pages()));
}

int64_t slots_for(int64_t rows) {
  return ops::hash_table::buckets_for(rows) * ops::hash_table::kSlots;
}

// Of so many allocated rows, without a cache (HashTable::allocate_rows).
MemoryBytes bytes_allocated(const HashTableOptions& options, int64_t allocated, int64_t row_bytes) {
  const int64_t slots = slots_for(allocated);
  const bool all = options.device_rows >= options.capacity;
  int64_t here = all ? slots : std::min(options.device_rows, slots);
  if (options.cached) here = 0;
  MemoryBytes bytes{.device = slots * kKeyBytes + here * row_bytes,
                    .host = (slots - here) * row_bytes};
  if (!options.device.is_cuda()) bytes = {.device = bytes.device + bytes.host, .host = 0};
  return bytes;
}

bool fits(const MemoryBytes& needed, const MemoryBytes& free) {
  return needed.device <= free.device && needed.host <= free.host;
}

// The highest number from 0 to most for which holds(number), which holds below it.
template <class Holds>
int64_t highest(int64_t most, Holds&& holds) {
  int64_t low = 0, high = most;
  while (low < high) {
    const int64_t middle = low + (high - low + 1) / 2;
    holds(middle) ? low = middle : high = middle - 1;
  }
  return low;
}

// The most rows on the GPU with which the table fits, the others being in the host's memory; 0: none.
int64_t fitting_device_rows(const MemoryPlan& plan, const MemoryBytes& free) {
  const auto with = [&](int64_t rows) {
    HashTableOptions options = plan.options;
    options.device_rows = rows;
    return plan_memory(options, options.capacity).full;
  };
  const int64_t rows = highest(plan.options.capacity - 1,
                               [&](int64_t some) { return with(some).device <= free.device; });
  return rows > 0 && fits(with(rows), free) ? rows : 0;
}

}  // namespace

MemoryPlan plan_memory(HashTableOptions options, int64_t capacity) {
  options.capacity = capacity;
  MemoryPlan plan{.options = options,
                  .row_bytes = (options.dim + options.state + 3) / 4 * 4 * 4,
                  .full = {},
                  .growing = {}};
  plan.full = bytes_allocated(options, capacity, plan.row_bytes);
  if (options.cached) {
    const int64_t cached = slots_for(std::min(options.device_rows, capacity));
    plan.full.device += cached * (plan.row_bytes + kKeyBytes + 8);
  }
  plan.growing = plan.full;
  if (options.initial_capacity < capacity) {
    // It is never larger than that before it has memory for all (grown_capacity()).
    const int64_t smaller = std::max(options.initial_capacity, capacity / 2);
    const MemoryBytes before = bytes_allocated(options, smaller, plan.row_bytes);
    plan.growing.device += before.device + smaller * kMovedBytes;
    plan.growing.host += before.host;
  }
  return plan;
}

MemoryBytes MemoryPlan::left(const HashTable& table) const {
  return {.device = std::max<int64_t>(0, full.device - table.bytes()),
          .host = std::max<int64_t>(0, full.host - table.host_bytes())};
}

MemoryBytes free_memory(at::Device device) {
  MemoryBytes free{.device = free_on_host(), .host = free_on_host()};
#ifdef SEQFUSE_HAS_CUDA
  if (device.is_cuda()) {
    const c10::cuda::CUDAGuard guard(device);
    size_t here = 0, total = 0;
    if (cudaMemGetInfo(&here, &total) == cudaSuccess) {
      free.device = static_cast<int64_t>(here);
    } else {
      cudaGetLastError();
      free.device = kUnknown;
    }
  }
#else
  static_cast<void>(device);
#endif
  return free;
}

bool can_grow(const MemoryPlan& plan, const MemoryBytes& free) {
  return fits(plan.growing, free);
}

std::string why_memory_does_not_suffice(const MemoryPlan& plan, const MemoryBytes& free) {
  if (fits(plan.full, free)) return "";
  const HashTableOptions& options = plan.options;
  const bool device_short = plan.full.device > free.device;
  const int64_t rows = highest(options.capacity, [&](int64_t capacity) {
    return capacity == 0 || fits(plan_memory(options, capacity).full, free);
  });
  std::string why =
      device_short ? fmt::format("{} rows take {} of {}, of which {} are free", options.capacity,
                                 size_text(plan.full.device),
                                 plan.on_gpu() ? "GPU memory" : "memory", size_text(free.device))
                   : fmt::format("{} of rows are to be in the host's memory, of which {} are free",
                                 size_text(plan.full.host), size_text(free.host));
  if (rows > 0) {
    why += fmt::format(
        "\n  lower DynamicEmbeddingArgs.item_vocab_size_or_capacity to at most {} in a process",
        rows);
  }
  if (!plan.on_gpu()) return why;
  if (const int64_t here = fitting_device_rows(plan, free); here > 0) {
    why += fmt::format(
        "\n  or keep {} rows in GPU memory, the others in the host's: item_vocab_gpu_capacity of "
        "at most {} a GPU{}",
        device_short ? "fewer" : "more", here, options.cached ? ", which are then a cache" : "");
  }
  return why;
}

}  // namespace seqfuse::embeddings
