// Defines forward_variants; included by the files that instantiate it.
#pragma once

#include "ops/kernels/attention/sm80/forward.cuh"
#include "ops/kernels/attention/sm80/forward_lagging.cuh"
#include "ops/kernels/attention/sm80/forward_pairs.cuh"
#include "ops/kernels/attention/sm80/shape.h"

namespace seqfuse::ops::attention::sm80 {

template <class Shape>
constexpr Variant forward_row(int block_bytes) {
  return {.config = config_of<Shape>("forward_kernel", 80, Shape::kD),
          .adds_bias = Shape::kBias,
          .needs = Needs::nothing,
          .block_bytes = block_bytes,
          .f16 = forward_kernel<__half, Shape>,
          .bf16 = forward_kernel<__nv_bfloat16, Shape>};
}

template <class Shape>
constexpr Variant forward_lagging_row(int block_bytes) {
  return {.config = config_of<Shape>("forward_lagging_kernel", 80, Shape::kD),
          .adds_bias = false,
          .needs = Needs::aligned_inputs_and_outputs,
          .block_bytes = block_bytes,
          .f16 = forward_lagging_kernel<__half, Shape>,
          .bf16 = forward_lagging_kernel<__nv_bfloat16, Shape>};
}

template <int kHeadDim>
std::span<const Variant> forward_variants() {
  using Plain = ForwardShape<kHeadDim, false>;
  using Biased = ForwardShape<kHeadDim, true>;
  static_assert(fills_sm80<Plain>() && fills_sm80<Biased>());
  if constexpr (kHeadDim == 256) {
    using Large = ForwardLaggingShape<kHeadDim, 2>;
    using Small = ForwardLaggingShape<kHeadDim, 1>;
    using Short = ForwardShape<kHeadDim, /*kBias=*/true, /*kIsShort=*/true>;
    static_assert(Small::kSharedBytes <= kSharedOfSm80 && Plain::kSharedBytes <= kSharedOfSm80 &&
                  Biased::kSharedBytes <= kSharedOfSm80 && Short::kSharedBytes <= kSharedOfSm86);
    static const Variant rows[] = {
        forward_lagging_row<Large>(Large::kSharedBytes),
        forward_lagging_row<Small>(kSharedOfSm80),
        forward_row<Plain>(kSharedOfSm80),
        forward_row<Biased>(kSharedOfSm80),
        forward_row<Short>(kSharedOfSm86),
    };
    return rows;
  } else {
    static_assert(Plain::kSharedBytes <= kSharedOfSm86 && Biased::kSharedBytes <= kSharedOfSm86);
    if constexpr (kHeadDim == 128) {
      using Pairs = ForwardPairsShape<kHeadDim>;
      static const Variant rows[] = {
          {.config = config_of<Pairs>("forward_pairs_kernel", 80, kHeadDim),
           .adds_bias = false,
           .needs = Needs::aligned_inputs,
           // A block may take nearly all of an SM's memory, so require room for all blocks.
           .block_bytes = Pairs::kBlocks * Pairs::kSharedBytes,
           .f16 = forward_pairs_kernel<__half, Pairs>,
           .bf16 = forward_pairs_kernel<__nv_bfloat16, Pairs>},
          forward_row<Plain>(kSharedOfSm86),
          forward_row<Biased>(kSharedOfSm86),
      };
      return rows;
    } else {
      static const Variant rows[] = {forward_row<Plain>(kSharedOfSm86),
                                     forward_row<Biased>(kSharedOfSm86)};
      return rows;
    }
  }
}

}  // namespace seqfuse::ops::attention::sm80
