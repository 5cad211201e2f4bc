// Defines the variants of the backward pass; included by the files that instantiate them.
#pragma once

#include "ops/kernels/attention/sm80/backward.cuh"
#include "ops/kernels/attention/sm80/backward_queries.cuh"
#include "ops/kernels/attention/sm80/backward_wide.cuh"
#include "ops/kernels/attention/sm80/bias_gradient.cuh"
#include "ops/kernels/attention/sm80/shape.h"

namespace seqfuse::ops::attention::sm80 {

// OfHalf, OfBfloat16: the same shape in both types.
template <class OfHalf, class OfBfloat16>
constexpr Variant backward_row(const char* name, Kernel f16, Kernel bf16, Needs needs,
                               int block_bytes) {
  return {.config = config_of<OfHalf>(name, 80, OfHalf::kD),
          .adds_bias = OfHalf::kBias,
          .needs = needs,
          .block_bytes = block_bytes,
          .f16 = f16,
          .bf16 = bf16,
          .finish_dq_f16 = finish_dq_kernel<DqSumsOf<OfHalf>>,
          .finish_dq_bf16 = finish_dq_kernel<DqSumsOf<OfBfloat16>>};
}

template <int kHeadDim, bool kBias>
constexpr Variant backward_narrow_row() {
  using OfHalf = BackwardShape<__half, kHeadDim, kBias>;
  using OfBfloat16 = BackwardShape<__nv_bfloat16, kHeadDim, kBias>;
  static_assert(OfHalf::kSharedBytes <= kSharedOfSm86 && (kBias || fills_sm80<OfHalf>()));
  return backward_row<OfHalf, OfBfloat16>("backward_kernel", backward_kernel<OfHalf>,
                                          backward_kernel<OfBfloat16>, Needs::nothing,
                                          kSharedOfSm86);
}

// block_bytes 0: the shared memory that the kernel uses.
template <int kHeadDim, bool kBias, Places kPlaces, bool kIsShort = false>
constexpr Variant backward_wide_row(Needs needs, int block_bytes = 0) {
  using OfHalf = BackwardWideShape<__half, kHeadDim, kBias, kPlaces, kIsShort>;
  using OfBfloat16 = BackwardWideShape<__nv_bfloat16, kHeadDim, kBias, kPlaces, kIsShort>;
  return backward_row<OfHalf, OfBfloat16>("backward_wide_kernel", backward_wide_kernel<OfHalf>,
                                          backward_wide_kernel<OfBfloat16>, needs,
                                          block_bytes > 0 ? block_bytes : OfHalf::kSharedBytes);
}

template <int kHeadDim>
std::span<const Variant> backward_variants() {
  if constexpr (kHeadDim <= 64) {
    static const Variant rows[] = {backward_narrow_row<kHeadDim, false>(),
                                   backward_narrow_row<kHeadDim, true>()};
    return rows;
  } else {
    constexpr int kFew = kHeadDim == 128 ? 2 : 1;  // a bias takes the space of a second dO
    static constexpr Variant rows[] = {
        backward_wide_row<kHeadDim, false, Places{2, kFew, 2}>(Needs::aligned_inputs),
        backward_wide_row<kHeadDim, false, Places{kFew, kFew, 1}>(Needs::nothing, kSharedOfSm80),
        backward_wide_row<kHeadDim, true, Places{2, kFew, 2}>(Needs::aligned_inputs),
        backward_wide_row<kHeadDim, true, Places{kFew, 1, 1}>(Needs::nothing, kSharedOfSm80),
        backward_wide_row<kHeadDim, true, Places{kHeadDim == 128 ? 1 : 2, 1, 1}, true>(
            Needs::nothing, kSharedOfSm86),
    };
    static_assert(rows[0].config.shared_bytes > kSharedOfSm86 &&
                  rows[2].config.shared_bytes > kSharedOfSm86 &&
                  rows[1].config.shared_bytes <= kSharedOfSm80 &&
                  rows[3].config.shared_bytes <= kSharedOfSm80 &&
                  rows[4].config.shared_bytes <= kSharedOfSm86);
    return rows;
  }
}

template <class Shape>
constexpr Variant backward_queries_row(int block_bytes) {
  return {.config = config_of<Shape>("backward_queries_kernel", 80, Shape::kD),
          .adds_bias = Shape::kBias,
          .needs = Needs::nothing,
          .block_bytes = block_bytes,
          .f16 = backward_queries_kernel<__half, Shape>,
          .bf16 = backward_queries_kernel<__nv_bfloat16, Shape>};
}

template <int kHeadDim>
std::span<const Variant> backward_queries_variants() {
  using Plain = BackwardQueriesShape<kHeadDim, false>;
  using Biased = BackwardQueriesShape<kHeadDim, true>;
  if constexpr (kHeadDim >= 128) {
    using Short = BackwardQueriesShape<kHeadDim, /*kBias=*/true, /*kIsShort=*/true>;
    static_assert(Biased::kSharedBytes <= kSharedOfSm80 && Short::kSharedBytes <= kSharedOfSm86);
    static const Variant rows[] = {backward_queries_row<Plain>(kSharedOfSm80),
                                   backward_queries_row<Biased>(kSharedOfSm80),
                                   backward_queries_row<Short>(kSharedOfSm86)};
    return rows;
  } else {
    static_assert(Biased::kSharedBytes <= kSharedOfSm86);
    static const Variant rows[] = {backward_queries_row<Plain>(kSharedOfSm86),
                                   backward_queries_row<Biased>(kSharedOfSm86)};
    return rows;
  }
}

template <class Shape, int kHeadDim>
constexpr Variant bias_gradient_row(int block_bytes) {
  return {.config = config_of<Shape>("bias_gradient_kernel", 80, kHeadDim),
          .adds_bias = true,
          .needs = Needs::nothing,
          .block_bytes = block_bytes,
          .f16 = bias_gradient_kernel<__half, Shape>,
          .bf16 = bias_gradient_kernel<__nv_bfloat16, Shape>};
}

template <int kHeadDim>
std::span<const Variant> bias_gradient_variants() {
  using Shape = BiasGradientShape<kHeadDim>;
  if constexpr (kHeadDim >= 128) {
    using Short = BiasGradientShape<kHeadDim, /*kIsShort=*/true>;
    static_assert(Shape::kSharedBytes <= kSharedOfSm80 && Short::kSharedBytes <= kSharedOfSm86);
    static const Variant rows[] = {bias_gradient_row<Shape, kHeadDim>(kSharedOfSm80),
                                   bias_gradient_row<Short, kHeadDim>(kSharedOfSm86)};
    return rows;
  } else {
    static_assert(Shape::kSharedBytes <= kSharedOfSm86);
    static const Variant rows[] = {bias_gradient_row<Shape, kHeadDim>(kSharedOfSm86)};
    return rows;
  }
}

}  // namespace seqfuse::ops::attention::sm80
