#include "ops/kernels/attention/masked_attention.h"

#include <algorithm>

#include "ops/kernels/attention/launch.h"
#include "ops/kernels/attention/masked_variant.h"
#include "ops/kernels/attention/sm80/masked_backward.cuh"
#include "ops/kernels/attention/sm90/masked_kernels.h"

namespace seqfuse::ops {
namespace attention {

const MaskedVariant& masked_variant(MaskedPass pass, int head_dim) {
  const std::span<const MaskedVariant> variants =
      pass == MaskedPass::forward   ? sm80::masked_forward_variants()
      : pass == MaskedPass::queries ? sm80::masked_queries_variants()
                                    : sm80::masked_keys_variants();
  const auto wide_enough = [&](const MaskedVariant& v) { return head_dim <= v.config.head_dim; };
  return *std::find_if(variants.begin(), variants.end() - 1, wide_enough);
}

}  // namespace attention

namespace {

using attention::MaskedPass;
using attention::MaskedVariant;
using attention::sm80::BatchView;
using attention::sm80::MaskedArguments;

// Rows of the delta kernel's blocks.
constexpr int kDeltaThreads = 128, kDeltaRows = kDeltaThreads / 16;

// 16-bit elements.
BatchView view_of(const BatchedHeads& heads) {
  return {static_cast<char*>(heads.data), heads.batch_stride * 2, heads.head_stride * 2,
          heads.row_stride * 2};
}

MaskedArguments arguments_of(const MaskedAttentionParams& p) {
  return {.mask = p.mask,
          .q = view_of(p.q),
          .k = view_of(p.k),
          .v = view_of(p.v),
          .out = view_of(p.out),
          .dout = view_of(p.dout),
          .dq = view_of(p.dq),
          .dk = view_of(p.dk),
          .dv = view_of(p.dv),
          .lse = static_cast<float*>(p.lse),
          .dlse = static_cast<const float*>(p.dlse),
          .delta = static_cast<float*>(p.delta),
          .batch = static_cast<int>(p.batch),
          .heads = static_cast<int>(p.heads),
          .key_heads = static_cast<int>(p.key_heads),
          .head_dim = static_cast<int>(p.head_dim),
          .scale = static_cast<float>(p.scale)};
}

#ifdef SEQFUSE_HAS_SM90_ATTENTION

// Launches the pass's kernel for SM 9.0, if the device is one and the kernel takes the problem.
cudaError_t launch_sm90(MaskedPass pass, const MaskedArguments& args, DType dtype,
                        cudaStream_t stream, bool& launched) {
  namespace sm90 = attention::sm90;
  attention::Device device;
  const cudaError_t error = attention::current_device(device);
  launched = error == cudaSuccess && device.sm == 90 &&
             (pass == MaskedPass::forward ? sm90::takes_masked_forward(args)
                                          : sm90::takes_masked_backward(args));
  if (!launched) return error;
  return pass == MaskedPass::forward   ? sm90::masked_forward(args, dtype, stream)
         : pass == MaskedPass::queries ? sm90::masked_backward_queries(args, dtype, stream)
                                       : sm90::masked_backward_keys(args, dtype, stream);
}

#endif

// One thread block for each list of blocks and head. lists: of one sequence.
cudaError_t launch(MaskedPass pass, const MaskedAttentionParams& p, int64_t lists, int64_t heads,
                   DType dtype, cudaStream_t stream) {
  const int64_t blocks = lists * p.batch * heads;
  if (blocks == 0) return cudaSuccess;
  const MaskedArguments args = arguments_of(p);
#ifdef SEQFUSE_HAS_SM90_ATTENTION
  bool launched = false;
  const cudaError_t sm90_error = launch_sm90(pass, args, dtype, stream, launched);
  if (launched || sm90_error != cudaSuccess) return sm90_error;
#endif
  const MaskedVariant& variant = attention::masked_variant(pass, static_cast<int>(p.head_dim));
  const auto kernel = dtype == DType::bf16 ? variant.bf16 : variant.f16;
  const int bytes = variant.config.shared_bytes;
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (error != cudaSuccess) return error;
  kernel<<<static_cast<unsigned>(blocks), static_cast<unsigned>(32 * variant.config.warps),
           static_cast<size_t>(bytes), stream>>>(args);
  return cudaGetLastError();
}

}  // namespace

cudaError_t masked_attention_forward_cuda(const MaskedAttentionParams& p, DType dtype,
                                          cudaStream_t stream) {
  return launch(MaskedPass::forward, p, p.mask.query_blocks, p.heads, dtype, stream);
}

cudaError_t masked_attention_backward_cuda(const MaskedAttentionParams& p, DType dtype,
                                           cudaStream_t stream) {
  const int64_t rows = p.batch * p.heads * p.mask.queries;
  if (rows > 0) {
    const auto kernel = dtype == DType::bf16 ? attention::sm80::masked_delta_kernel<__nv_bfloat16>
                                             : attention::sm80::masked_delta_kernel<__half>;
    kernel<<<static_cast<unsigned>((rows + kDeltaRows - 1) / kDeltaRows), kDeltaThreads, 0,
             stream>>>(arguments_of(p));
  }
  cudaError_t error = cudaGetLastError();
  if (error == cudaSuccess)
    error = launch(MaskedPass::keys, p, p.mask.key_blocks, p.key_heads, dtype, stream);
  if (error == cudaSuccess)
    error = launch(MaskedPass::queries, p, p.mask.query_blocks, p.heads, dtype, stream);
  return error;
}

}  // namespace seqfuse::ops
