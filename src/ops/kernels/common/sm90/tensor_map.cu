#include "ops/kernels/common/sm90/tensor_map.h"

#include <algorithm>

namespace seqfuse::ops::sm90 {
namespace {

// By way of the runtime: nothing here links the driver's library. Null if it has no such function.
decltype(&cuTensorMapEncodeTiled) encoder() {
  static const auto found = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult result{};
#if CUDART_VERSION >= 12050
    const cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function,
                                                               12000, cudaEnableDefault, &result);
#else
    const cudaError_t error =
        cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &function, cudaEnableDefault, &result);
#endif
    const bool there = error == cudaSuccess && result == cudaDriverEntryPointSuccess;
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(there ? function : nullptr);
  }();
  return found;
}

}  // namespace

cudaError_t make_tensor_map(CUtensorMap& map, const RowsOfHeads& t) {
  if (encoder() == nullptr) return cudaErrorNotSupported;
  const auto number = [](int64_t n) { return static_cast<cuuint64_t>(n); };
  // Of a dimension of one element, a stride is never used.
  const auto stride = [&](int64_t bytes, int64_t size) {
    return number(size == 1 ? t.row_bytes : bytes);
  };
  const cuuint64_t sizes[5] = {number(t.columns), number(t.step), number(t.rows / t.step),
                               number(t.heads), number(t.batch)};
  const cuuint64_t strides[4] = {number(t.row_bytes), number(t.row_bytes * t.step),
                                 stride(t.head_bytes, t.heads), stride(t.batch_bytes, t.batch)};
  const cuuint32_t box[5] = {64, 1, 64, 1, 1}, neighbours[5] = {1, 1, 1, 1, 1};
  const CUresult result =
      encoder()(&map, CU_TENSOR_MAP_DATA_TYPE_UINT16, 5, t.data, sizes, strides, box, neighbours,
                CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

}  // namespace seqfuse::ops::sm90
