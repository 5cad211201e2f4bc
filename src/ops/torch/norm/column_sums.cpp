#include "ops/torch/norm/column_sums.h"

#include "ops/kernels/norm/column_sums.h"
#include "ops/torch/cuda.h"

namespace seqfuse::ops {

#ifdef SEQFUSE_HAS_CUDA
void column_sums_into(const Tensor& sums, const Tensor& x) {
  const DeviceGuard guard(x);
  const int64_t rows = x.size(0), columns = x.size(1);
  const Tensor parts = at::empty({column_sums_parts(rows, columns), columns}, sums.options());
  const ColumnSumsParams params{.x = x.const_data_ptr(),
                                .sums = sums.mutable_data_ptr<float>(),
                                .workspace = parts.mutable_data_ptr<float>(),
                                .rows = rows,
                                .columns = columns,
                                .x_stride = x.stride(0)};
  C10_CUDA_CHECK(column_sums_cuda(params, dtype_of(x), c10::cuda::getCurrentCUDAStream()));
}
#else
void column_sums_into(const Tensor&, const Tensor&) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "column_sums: this build has no CUDA");
}
#endif

}  // namespace seqfuse::ops
