// Host code that the launchers of attention under a mask share; for files that nvcc compiles.
#pragma once

#include "ops/kernels/attention/common/masked_arguments.h"
#include "ops/kernels/attention/masked_variant.h"

namespace seqfuse::ops::attention {

inline MaskedArguments arguments_of(const MaskedAttentionParams& p) {
  const auto view = [](const BatchedHeads& heads) {  // of 16-bit elements
    return BatchView{static_cast<char*>(heads.data), heads.batch_stride * 2, heads.head_stride * 2,
                     heads.row_stride * 2};
  };
  const int64_t rows = p.batch * p.heads * p.mask.queries;
  auto* const delta = static_cast<float*>(p.delta);
  return {.mask = p.mask,
          .q = view(p.q),
          .k = view(p.k),
          .v = view(p.v),
          .out = view(p.out),
          .dout = view(p.dout),
          .dq = view(p.dq),
          .dk = view(p.dk),
          .dv = view(p.dv),
          .lse = static_cast<float*>(p.lse),
          .dlse = static_cast<const float*>(p.dlse),
          .delta = delta,
          .shift = delta ? delta + rows : nullptr,
          .batch = static_cast<int>(p.batch),
          .heads = static_cast<int>(p.heads),
          .key_heads = static_cast<int>(p.key_heads),
          .head_dim = static_cast<int>(p.head_dim),
          .scale = static_cast<float>(p.scale)};
}

// The lists of blocks, each for every head: as many as a kernel has thread blocks.
inline int64_t lists_of_queries(const MaskedAttentionParams& p) {
  return p.mask.query_blocks * p.batch * p.heads;
}
inline int64_t lists_of_keys(const MaskedAttentionParams& p) {
  return p.mask.key_blocks * p.batch * p.key_heads;
}

// The kernel of a dtype, for a number of thread blocks, which may be 0.
template <class... Arguments>
cudaError_t launch_blocks(const Config& config, void (*f16)(Arguments...),
                          void (*bf16)(Arguments...), DType dtype, int64_t blocks,
                          cudaStream_t stream, const Arguments&... arguments) {
  if (blocks == 0) return cudaSuccess;
  const auto kernel = dtype == DType::bf16 ? bf16 : f16;
  const cudaError_t error = cudaFuncSetAttribute(
      kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, config.shared_bytes);
  if (error != cudaSuccess) return error;
  kernel<<<static_cast<unsigned>(blocks), static_cast<unsigned>(32 * config.warps),
           static_cast<size_t>(config.shared_bytes), stream>>>(arguments...);
  return cudaGetLastError();
}

// Writes delta and shift of all queries (masked_arguments.h).
cudaError_t launch_masked_delta(const MaskedArguments& args, DType dtype, cudaStream_t stream);

}  // namespace seqfuse::ops::attention
