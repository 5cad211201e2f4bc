#include "embeddings/dynamic/memory_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <limits>

#ifdef SEQFUSE_HAS_CUDA
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime_api.h>
#endif

#include "base/progress.h"

namespace seqfuse::embeddings {
namespace {

constexpr int64_t kKeyBytes = 8 + 8 + 4 + 1;  // key, score, touched, digest

std::string size_text(int64_t bytes) {
  return format_count(static_cast<double>(bytes)) + "B";
}

int64_t free_on_host() {
  std::ifstream file("/proc/meminfo");
  std::string name, unit;
  for (int64_t kilobytes = 0; file >> name >> kilobytes; std::getline(file, unit)) {
    if (name == "MemAvailable:") return kilobytes * 1024;
  }
  return std::numeric_limits<int64_t>::max();  // unknown
}

}  // namespace

MemoryPlan plan_memory(const HashTableOptions& options, int64_t capacity) {
  const auto slots_for = [](int64_t rows) {
    return ops::hash_table::buckets_for(rows) * ops::hash_table::kSlots;
  };
  const int64_t row = (options.dim + options.state + 3) / 4 * 4 * 4;
  const int64_t slots = slots_for(capacity);
  MemoryPlan plan{.capacity = capacity, .row_bytes = row, .on_gpu = options.device.is_cuda()};
  int64_t here = std::min(options.device_rows, slots);
  if (options.cached) {
    const int64_t cached = slots_for(std::min(options.device_rows, capacity));
    plan.device_bytes = slots * kKeyBytes + cached * (row + kKeyBytes + 8);
    here = 0;
  } else {
    plan.device_bytes = slots * kKeyBytes + here * row;
  }
  plan.host_bytes = (slots - here) * row;
  if (!plan.on_gpu) {
    plan.device_bytes += plan.host_bytes;
    plan.host_bytes = 0;
  }
  return plan;
}

FreeMemory free_memory(at::Device device) {
  FreeMemory free{.device = free_on_host(), .host = free_on_host()};
#ifdef SEQFUSE_HAS_CUDA
  if (device.is_cuda()) {
    const c10::cuda::CUDAGuard guard(device);
    size_t here = 0, total = 0;
    if (cudaMemGetInfo(&here, &total) == cudaSuccess) {
      free.device = static_cast<int64_t>(here);
    } else {
      cudaGetLastError();
      free.device = std::numeric_limits<int64_t>::max();
    }
  }
#else
  static_cast<void>(device);
#endif
  return free;
}

std::string why_memory_does_not_suffice(const MemoryPlan& plan, const FreeMemory& free) {
  const char* place = plan.on_gpu ? "GPU memory" : "memory";
  if (plan.device_bytes > free.device) {
    const int64_t bucket = ops::hash_table::kSlots * (plan.row_bytes + kKeyBytes);
    const int64_t rows = free.device / bucket * ops::hash_table::kFill;
    return fmt::format(
        "{} rows take {} of {}, of which {} are free\n"
        "  lower DynamicEmbeddingArgs.item_vocab_size_or_capacity to at most {}{}",
        plan.capacity, size_text(plan.device_bytes), place, size_text(free.device), rows,
        plan.on_gpu ? fmt::format(", or keep rows in the host's memory: item_vocab_gpu_capacity of "
                                  "at most {}",
                                  rows)
                    : "");
  }
  if (plan.on_gpu && plan.host_bytes > free.host) {
    return fmt::format(
        "{} of rows are to be in the host's memory, of which {} are free\n"
        "  lower DynamicEmbeddingArgs.item_vocab_size_or_capacity, or keep more rows in GPU "
        "memory: "
        "global_hbm_for_values, item_vocab_gpu_capacity or item_vocab_gpu_capacity_ratio",
        size_text(plan.host_bytes), size_text(free.host));
  }
  return "";
}

}  // namespace seqfuse::embeddings
