#include "ops/kernels/softmax/sample_uniform.h"

#include <torch/types.h>

#include <limits>

#include "ops/kernels/jagged/embedding.h"
#include "ops/torch/checks.h"
#include "ops/torch/cuda.h"
#include "ops/torch/device_seeds.h"
#include "ops/torch/dispatch.h"
#include "ops/torch/ops.h"

namespace seqfuse::ops {
namespace sample_uniform_op {
namespace {

Tensor run(const Tensor& pool, int64_t rows, int64_t per_row, int64_t seed) {
  constexpr int64_t kEnd = std::numeric_limits<int32_t>::max();
  const Arg arg{"sample_uniform", "pool", pool};
  check_device(arg);
  check_int64(arg);
  check_rank(arg, 1, "[C]");
  TORCH_CHECK_VALUE(rows >= 0 && per_row >= 0, "sample_uniform: rows is ", rows, " and per_row is ",
                    per_row, "; expected neither to be negative");
  Tensor samples = at::empty({rows, per_row}, pool.options().dtype(at::kInt));
  if (samples.numel() == 0) return samples;
  TORCH_CHECK_VALUE(pool.numel() > 0 && pool.numel() <= kEnd, label(arg), " has ", pool.numel(),
                    " ids; expected at least 1 and at most ", kEnd);
  const DeviceGuard guard(pool);
  const Tensor ids = pool.contiguous();
  const int64_t* values = ids.const_data_ptr<int64_t>();
  if (ids.is_cpu()) {
    const int64_t i = first_outside_cpu(values, ids.numel(), kEnd);
    TORCH_CHECK_INDEX(i < 0, label(arg), "[", i, "] is ", values[i],
                      "; expected an id of at least 0 and below ", kEnd, " (samples are int32)");
  }
  SEQFUSE_RUN(ids, sample_uniform,
              {.pool = values,
               .samples = samples.mutable_data_ptr<int32_t>(),
               .size = ids.numel(),
               .count = samples.numel(),
               .seed = kernel_seed(ids, seed)});
  return samples;
}

Tensor shapes(const Tensor& pool, c10::SymInt rows, c10::SymInt per_row, c10::SymInt) {
  return empty_shape({rows, per_row}, pool.options().dtype(at::kInt));
}

}  // namespace
}  // namespace sample_uniform_op

Tensor sample_uniform(const Tensor& pool, int64_t rows, int64_t per_row, int64_t seed) {
  static const auto op =
      find_operator<decltype(sample_uniform_op::shapes)>("seqfuse::sample_uniform");
  return op.call(pool, rows, per_row, seed);
}

TORCH_LIBRARY_FRAGMENT(seqfuse, library) {
  using namespace sample_uniform_op;
  Definition(library,
             "sample_uniform(Tensor pool, SymInt rows, SymInt per_row, SymInt seed) -> Tensor")
      .kernels(&run, &shapes);
}

}  // namespace seqfuse::ops
