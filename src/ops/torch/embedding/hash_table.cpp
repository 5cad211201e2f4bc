#include "ops/torch/embedding/hash_table.h"

#include <limits>
#include <tuple>

#include "ops/kernels/hash_table/run_sums.h"
#include "ops/torch/cuda.h"
#include "ops/torch/embedding/table.h"

namespace seqfuse::ops::hash_table {
namespace {

// Calls cpu(params), or cuda(params, stream) with the device made current.
#ifdef SEQFUSE_HAS_CUDA
#define SEQFUSE_RUN_ON(device, name, params)                 \
  do {                                                       \
    if ((device).is_cuda()) {                                \
      const c10::cuda::CUDAGuard guard(device);              \
      const auto stream = c10::cuda::getCurrentCUDAStream(); \
      C10_CUDA_CHECK(name##_cuda(params, stream));           \
    } else {                                                 \
      name##_cpu(params);                                    \
    }                                                        \
  } while (false)
#else
#define SEQFUSE_RUN_ON(device, name, params) name##_cpu(params)
#endif

}  // namespace

void run(const Find& params, [[maybe_unused]] at::Device device) {
  SEQFUSE_RUN_ON(device, find, params);
}
void run(const Insert& params, [[maybe_unused]] at::Device device) {
  SEQFUSE_RUN_ON(device, insert, params);
}
void run(const Erase& params, [[maybe_unused]] at::Device device) {
  SEQFUSE_RUN_ON(device, erase, params);
}
void run(const InitializeRows& params, [[maybe_unused]] at::Device device) {
  SEQFUSE_RUN_ON(device, initialize_rows, params);
}
void run(const GatherRows& params, [[maybe_unused]] at::Device device) {
  SEQFUSE_RUN_ON(device, gather_rows, params);
}
void run(const FindRows& params, [[maybe_unused]] at::Device device) {
  SEQFUSE_RUN_ON(device, find_rows, params);
}
void run(const CopyRows& params, [[maybe_unused]] at::Device device) {
  SEQFUSE_RUN_ON(device, copy_rows, params);
}
void run(const UpdateRows& params, [[maybe_unused]] at::Device device) {
  SEQFUSE_RUN_ON(device, update_rows, params);
}

Storage::Storage(int64_t capacity_, at::Device device)
    : capacity(capacity_), buckets(buckets_for(capacity_)) {
  const auto options = at::TensorOptions().device(device);
  digests = at::zeros({buckets * kSlots}, options.dtype(at::kByte));
  // Read only where there is a digest, but zeros keep empty slots equal from run to run.
  keys = at::zeros({buckets * kSlots}, options.dtype(at::kLong));
  scores = at::zeros({buckets * kSlots}, options.dtype(at::kLong));
  touched = at::zeros({buckets * kSlots}, options.dtype(at::kInt));
  counters = at::zeros({kCounters}, options.dtype(at::kLong));
}

View Storage::view() const {
  return {.digests = digests.mutable_data_ptr<uint8_t>(),
          .keys = keys.mutable_data_ptr<int64_t>(),
          .scores = scores.mutable_data_ptr<int64_t>(),
          .touched = reinterpret_cast<uint32_t*>(touched.mutable_data_ptr<int32_t>()),
          .counters = counters.mutable_data_ptr<int64_t>(),
          .buckets = buckets,
          .capacity = capacity};
}

#ifdef SEQFUSE_HAS_CUDA
namespace {

// Kernels that were enqueued before may still read the memory, and cudaFreeHost does not promise to wait
// for them. Errors are left to the next call: this runs in destructors, also at the end of the process.
void free_pinned_rows(void* memory, int device) {
  int before = 0;
  const bool known = cudaGetDevice(&before) == cudaSuccess;
  if (cudaSetDevice(device) == cudaSuccess) cudaDeviceSynchronize();
  cudaFreeHost(memory);
  if (known) cudaSetDevice(before);
}

}  // namespace
#endif

Tensor pinned_rows([[maybe_unused]] int64_t rows, [[maybe_unused]] int64_t columns,
                   [[maybe_unused]] at::Device device) {
#ifdef SEQFUSE_HAS_CUDA
  const c10::cuda::CUDAGuard guard(device);
  // torch's allocator of pinned memory would round a size up to a power of two.
  void* memory = nullptr;
  const size_t bytes = static_cast<size_t>(rows * columns) * sizeof(float);
  if (bytes == 0) return at::empty({rows, columns}, at::kFloat);
  if (cudaHostAlloc(&memory, bytes, cudaHostAllocPortable) != cudaSuccess) {
    cudaGetLastError();  // so that no later call reports it
    return {};
  }
  const int gpu = guard.current_device().index();
  return at::from_blob(
      memory, {rows, columns}, [gpu](void* data) { free_pinned_rows(data, gpu); }, at::kFloat);
#else
  return {};
#endif
}

UniqueIds unique_ids(const Tensor& given, const Tensor& times) {
  const Tensor ids = given.flatten();
  const int64_t n = ids.numel();
  UniqueIds unique;
  if (ids.is_cpu() || n == 0) {
    std::tie(unique.ids, unique.inverse, unique.often) =
        at::_unique2(ids, /*sorted=*/true, /*return_inverse=*/true, /*return_counts=*/true);
    if (times.defined()) unique.often.zero_().scatter_add_(0, unique.inverse, times.flatten());
    return unique;
  }
  Tensor sorted;
  std::tie(sorted, unique.order) = at::sort(ids, /*stable=*/true, 0, /*descending=*/false);
  Tensor starts = at::ones({n}, ids.options());
  starts.slice(0, 1).copy_(sorted.slice(0, 1).ne(sorted.slice(0, 0, n - 1)));
  const Tensor rank = at::cumsum(starts, 0) - 1;
  unique.limit = rank.slice(0, n - 1) + 1;
  unique.inverse = at::empty_like(ids).scatter_(0, unique.order, rank);
  unique.ids = at::full({n}, std::numeric_limits<int64_t>::max(), ids.options());
  unique.ids.scatter_(0, rank, sorted);  // equal ids write the same
  if (times.defined()) {
    unique.often = at::zeros({n}, ids.options());
    unique.often.scatter_add_(0, rank, times.flatten().index_select(0, unique.order));
  } else {
    // From where each id starts to where the next does: sums of ones would meet in few places, since
    // few ids make up most of a batch.
    const Tensor where = rank.masked_fill(starts.eq(0), n + 1);
    const Tensor begins = at::full({n + 2}, n, ids.options());
    begins.scatter_(0, where, at::arange(n, ids.options()));
    unique.often = begins.slice(0, 1, n + 1) - begins.slice(0, 0, n);
  }
  unique.sorted_rank = rank.to(at::kInt);
  return unique;
}

Tensor sum_by_id(const UniqueIds& unique, const Tensor& given, [[maybe_unused]] bool zeros) {
  const Tensor gradients = given.to(at::kFloat).contiguous();
  const int64_t rows = unique.size();
  if (gradients.size(0) == 0) return at::zeros({rows, gradients.size(1)}, gradients.options());
  if (gradients.is_cpu()) {
    const TableTerms terms{.rows = gradients, .ids = unique.inverse, .more_ids = {}, .weights = {}};
    return table_gradient(terms, rows, at::kFloat, /*sparse=*/false);
  }
#ifdef SEQFUSE_HAS_CUDA
  const DeviceGuard guard(gradients);
  const int64_t n = gradients.size(0), dim = gradients.size(1);
  Tensor sums = at::empty({rows, dim}, gradients.options());
  if (zeros) sums.zero_();
  const Tensor partial = at::empty({2 * run_pieces(n), dim}, gradients.options());
  C10_CUDA_CHECK(sum_runs_cuda({.rows = gradients.const_data_ptr<float>(),
                                .order = unique.order.const_data_ptr<int64_t>(),
                                .rank = unique.sorted_rank.const_data_ptr<int32_t>(),
                                .count = n,
                                .dim = dim,
                                .partial = partial.mutable_data_ptr<float>(),
                                .sums = sums.mutable_data_ptr<float>()},
                               c10::cuda::getCurrentCUDAStream()));
  return sums;
#else
  return {};
#endif
}

}  // namespace seqfuse::ops::hash_table
