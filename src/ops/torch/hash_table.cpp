#include "ops/torch/hash_table.h"

#include <limits>
#include <tuple>

#include "ops/kernels/jagged/row_sums.h"
#include "ops/torch/cuda.h"
#include "ops/torch/table.h"

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

UniqueIds unique_ids(const Tensor& given) {
  const Tensor ids = given.flatten();
  const int64_t n = ids.numel();
  UniqueIds unique;
  if (ids.is_cpu() || n == 0) {
    std::tie(unique.ids, unique.inverse, unique.often) =
        at::_unique2(ids, /*sorted=*/true, /*return_inverse=*/true, /*return_counts=*/true);
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
  unique.often = at::zeros({n}, ids.options()).scatter_add_(0, rank, at::ones({n}, ids.options()));
  unique.sorted_rank = rank.to(at::kInt);
  return unique;
}

Tensor sum_by_id(const UniqueIds& unique, const Tensor& given) {
  const Tensor gradients = given.to(at::kFloat).contiguous();
  const int64_t rows = unique.size();
  if (gradients.size(0) == 0) return at::zeros({rows, gradients.size(1)}, gradients.options());
  if (gradients.is_cpu()) {
    const TableTerms terms{.rows = gradients, .ids = unique.inverse, .more_ids = {}, .weights = {}};
    return table_gradient(terms, rows, at::kFloat, /*sparse=*/false);
  }
#ifdef SEQFUSE_HAS_CUDA
  const DeviceGuard guard(gradients);
  Tensor sums = at::zeros({rows, gradients.size(1)}, gradients.options());
  const RowSumParams terms{.rows = gradients.const_data_ptr(),
                           .ids = unique.inverse.const_data_ptr<int64_t>(),
                           .more_ids = nullptr,
                           .weights = nullptr,
                           .positions = gradients.size(0),
                           .columns = 1,
                           .dim = gradients.size(1),
                           .num_rows = rows};
  C10_CUDA_CHECK(row_sums_cuda({.terms = terms,
                                .sums = sums.mutable_data_ptr<float>(),
                                .sorted_ids = unique.sorted_rank.const_data_ptr<int32_t>(),
                                .order = unique.order.const_data_ptr<int64_t>()},
                               DType::f32, c10::cuda::getCurrentCUDAStream()));
  return sums;
#else
  return {};
#endif
}

}  // namespace seqfuse::ops::hash_table
