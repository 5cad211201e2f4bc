// How a decoding step runs on a GPU. All options give the same tokens up to rounding; the default is the
// fastest, the others show what each part brings (serving/decoding/ladder.h).
#pragma once

namespace seqfuse::models::gpt_neox {

struct StepOptions {
  bool graph = true;        // one CUDA graph a step; else the host launches kernel after kernel
  bool own_kernels = true;  // those of GpuStep; else PyTorch's operators, as on prompts
  // The rest has an effect with own_kernels only.
  bool fused_norms =
      true;  // both norms of a layer, and its sums, in the launch of another operator
  bool merged_linears = true;  // [W_qkv | W_up] in one launch, [W_out | W_down] in one
  bool early_starts = true;  // SM 9.0: kernels start, and read weights, before the one before ends

  bool operator==(const StepOptions&) const = default;
};

}  // namespace seqfuse::models::gpt_neox
