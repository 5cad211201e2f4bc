// Defines launch_backward; included by the files that instantiate it.
#pragma once

#include "ops/kernels/attention/sm80/backward.cuh"
#include "ops/kernels/attention/sm80/backward_queries.cuh"
#include "ops/kernels/attention/sm80/backward_wide.cuh"
#include "ops/kernels/attention/sm80/bias_gradient.cuh"
#include "ops/kernels/attention/sm80/persistent.cuh"

namespace seqfuse::ops::sm80 {

template <class Shape, class Kernel>
cudaError_t launch_backward_shape(Kernel kernel, const Arguments& args, int64_t pieces,
                                  cudaStream_t stream) {
  const cudaError_t error = launch_persistent<Shape>(kernel, args, pieces, stream);
  if (error != cudaSuccess || !args.dq_sums) return error;
  const dim3 grid(static_cast<unsigned>((args.max_seqlen + Shape::kM - 1) / Shape::kM),
                  static_cast<unsigned>(args.heads), static_cast<unsigned>(args.batch));
  finish_dq_kernel<Shape><<<grid, Shape::kThreads, 0, stream>>>(args);
  return cudaGetLastError();
}

template <class T, int kHeadDim, bool kBias>
cudaError_t launch_backward_bias(const Arguments& args, int block_bytes, int64_t pieces,
                                 cudaStream_t stream) {
  if constexpr (kHeadDim <= 64) {
    using Shape = BackwardShape<T, kHeadDim, kBias>;
    static_assert(Shape::kSharedBytes <= kSharedOfSm86 && (kBias || fills_sm80<Shape>()));
    return launch_backward_shape<Shape>(backward_kernel<Shape>, args, pieces, stream);
  } else {
    constexpr int kFew = kHeadDim == 128 ? 2 : 1;  // biases take the room of a second dO
    using Large = BackwardWideShape<T, kHeadDim, kBias, Places{2, kFew, 2}>;
    using Small = BackwardWideShape<T, kHeadDim, kBias, Places{kFew, kBias ? 1 : kFew, 1}>;
    using Short = BackwardWideShape<T, kHeadDim, true, Places{kHeadDim == 128 ? 1 : 2, 1, 1}, true>;
    static_assert(Large::kSharedBytes > kSharedOfSm86 && Small::kSharedBytes <= kSharedOfSm80 &&
                  Short::kSharedBytes <= kSharedOfSm86);
    if (block_bytes >= Large::kSharedBytes && reads_whole_chunks(args) && args.dout.grain == 16)
      return launch_backward_shape<Large>(backward_wide_kernel<Large>, args, pieces, stream);
    if (!is_short_of_shared(block_bytes))
      return launch_backward_shape<Small>(backward_wide_kernel<Small>, args, pieces, stream);
    return launch_backward_shape<Short>(backward_wide_kernel<Short>, args, pieces, stream);
  }
}

template <class T, int kHeadDim>
cudaError_t launch_backward_type(const Arguments& args, int block_bytes, int64_t pieces,
                                 cudaStream_t stream) {
  if (args.bias.position || args.bias.tables)
    return launch_backward_bias<T, kHeadDim, true>(args, block_bytes, pieces, stream);
  return launch_backward_bias<T, kHeadDim, false>(args, block_bytes, pieces, stream);
}

template <int kHeadDim>
cudaError_t launch_backward(const Arguments& args, DType dtype, int block_bytes, int64_t pieces,
                            cudaStream_t stream) {
  if (dtype == DType::bf16)
    return launch_backward_type<__nv_bfloat16, kHeadDim>(args, block_bytes, pieces, stream);
  return launch_backward_type<__half, kHeadDim>(args, block_bytes, pieces, stream);
}

template <class T, int kHeadDim>
cudaError_t launch_backward_queries_type(const Arguments& args, int block_bytes, int64_t pieces,
                                         cudaStream_t stream) {
  using Plain = BackwardQueriesShape<kHeadDim, false>;
  using Biased = BackwardQueriesShape<kHeadDim, true>;
  if constexpr (kHeadDim >= 128) {
    using Short = BackwardQueriesShape<kHeadDim, /*kBias=*/true, /*kIsShort=*/true>;
    static_assert(Biased::kSharedBytes <= kSharedOfSm80 && Short::kSharedBytes <= kSharedOfSm86);
    if (is_short_of_shared(block_bytes))
      return launch_persistent<Short>(backward_queries_kernel<T, Short>, args, pieces, stream);
  } else {
    static_assert(Biased::kSharedBytes <= kSharedOfSm86);
  }
  if (args.bias.position || args.bias.tables)
    return launch_persistent<Biased>(backward_queries_kernel<T, Biased>, args, pieces, stream);
  return launch_persistent<Plain>(backward_queries_kernel<T, Plain>, args, pieces, stream);
}

template <int kHeadDim>
cudaError_t launch_backward_queries(const Arguments& args, DType dtype, int block_bytes,
                                    int64_t pieces, cudaStream_t stream) {
  if (dtype == DType::bf16)
    return launch_backward_queries_type<__nv_bfloat16, kHeadDim>(args, block_bytes, pieces, stream);
  return launch_backward_queries_type<__half, kHeadDim>(args, block_bytes, pieces, stream);
}

template <class T, int kHeadDim>
cudaError_t launch_bias_gradient_type(const Arguments& args, int block_bytes, int64_t pieces,
                                      cudaStream_t stream) {
  using Shape = BiasGradientShape<kHeadDim>;
  if constexpr (kHeadDim >= 128) {
    using Short = BiasGradientShape<kHeadDim, /*kIsShort=*/true>;
    static_assert(Shape::kSharedBytes <= kSharedOfSm80 && Short::kSharedBytes <= kSharedOfSm86);
    if (is_short_of_shared(block_bytes))
      return launch_persistent<Short>(bias_gradient_kernel<T, Short>, args, pieces, stream);
  } else {
    static_assert(Shape::kSharedBytes <= kSharedOfSm86);
  }
  return launch_persistent<Shape>(bias_gradient_kernel<T, Shape>, args, pieces, stream);
}

template <int kHeadDim>
cudaError_t launch_bias_gradient(const Arguments& args, DType dtype, int block_bytes,
                                 int64_t pieces, cudaStream_t stream) {
  if (dtype == DType::bf16)
    return launch_bias_gradient_type<__nv_bfloat16, kHeadDim>(args, block_bytes, pieces, stream);
  return launch_bias_gradient_type<__half, kHeadDim>(args, block_bytes, pieces, stream);
}

}  // namespace seqfuse::ops::sm80
