// The arguments of hstu_layer and of its fused passes, separately in the order of a schema, and
// what these passes hand to each other.
#pragma once

#include <torch/types.h>

#include <array>
#include <string>

#include "ops/torch/attention/hstu_attention_options.h"
#include "ops/torch/ops.h"

namespace seqfuse::ops {

struct LayerArguments {
  Tensor x;
  HstuLayerWeights weights;
  Tensor offsets;
  HstuLayerOptions options;
};

inline std::string layer_schema() {
  return "Tensor x, Tensor? input_norm_weight, Tensor? input_norm_bias, Tensor uvqk_weight, "
         "Tensor? uvqk_bias, Tensor? output_norm_weight, Tensor? output_norm_bias, "
         "Tensor output_weight, Tensor? output_bias, Tensor offsets, int heads, float eps, "
         "float dropout, SymInt seed, bool recompute_input_layernorm, bool recompute_input_silu, " +
         attention_schema();
}

// The signature of a function that takes them; Before: arguments before them.
template <class Result, class... Before>
using LayerSignature = AttentionSignature<
    Result, Before..., const Tensor&, const OptionalTensor&, const OptionalTensor&, const Tensor&,
    const OptionalTensor&, const OptionalTensor&, const OptionalTensor&, const Tensor&,
    const OptionalTensor&, const Tensor&, int64_t, double, double, c10::SymInt, bool, bool>;

template <class... Values>
LayerArguments layer_arguments(const Tensor& x, const OptionalTensor& input_norm_weight,
                               const OptionalTensor& input_norm_bias, const Tensor& uvqk_weight,
                               const OptionalTensor& uvqk_bias,
                               const OptionalTensor& output_norm_weight,
                               const OptionalTensor& output_norm_bias, const Tensor& output_weight,
                               const OptionalTensor& output_bias, const Tensor& offsets,
                               int64_t heads, double eps, double dropout, c10::SymInt seed,
                               bool recompute_input_layernorm, bool recompute_input_silu,
                               Values... attention) {
  return {.x = x,
          .weights = {.input_norm_weight = input_norm_weight,
                      .input_norm_bias = input_norm_bias,
                      .uvqk = uvqk_weight,
                      .uvqk_bias = uvqk_bias,
                      .output_norm_weight = output_norm_weight,
                      .output_norm_bias = output_norm_bias,
                      .output = output_weight,
                      .output_bias = output_bias},
          .offsets = offsets,
          .options = {.heads = heads,
                      .eps = eps,
                      .dropout = dropout,
                      .seed = std::move(seed),
                      .recompute_input_layernorm = recompute_input_layernorm,
                      .recompute_input_silu = recompute_input_silu,
                      .attention = attention_options(attention...)}};
}

// Calls op with before and the arguments.
template <class Op, class... Before>
auto call_with(const Op& op, const LayerArguments& a, const Before&... before) {
  const HstuLayerWeights& w = a.weights;
  const HstuLayerOptions& o = a.options;
  return call_with(op, o.attention, before..., a.x, w.input_norm_weight, w.input_norm_bias, w.uvqk,
                   w.uvqk_bias, w.output_norm_weight, w.output_norm_bias, w.output, w.output_bias,
                   a.offsets, o.heads, o.eps, o.dropout, o.seed, o.recompute_input_layernorm,
                   o.recompute_input_silu);
}

// u, v, q and k, or their gradients: the columns of one matrix [T, 4 H d].
struct LayerParts {
  LayerParts(const Tensor& uvqk, int64_t heads) {
    const auto parts = uvqk.chunk(4, 1);
    const auto heads_of = [&](size_t part) { return parts[part].unflatten(1, {heads, -1}); };
    u = parts[0];
    v = heads_of(1);
    q = heads_of(2);
    k = heads_of(3);
  }
  Tensor u, v, q, k;  // [T, H d], then three [T, H, d]
};

// The layer composed of the other operators with this attention, differentiable through them.
Tensor layer_of_operators(const LayerArguments& a,
                          decltype(&hstu_attention) attention = &hstu_attention);

// ---- the fused passes (hstu_layer_fused.cpp), CUDA only: seqfuse::hstu_layer_forward, _backward.
// Weights are in x's dtype; weights and x are contiguous.

// The result, and what the backward pass needs besides the arguments: mean and reciprocal deviation
// of the input norm; normed (undefined with recompute_input_layernorm); the product with W_uvqk;
// SiLU of it (undefined with recompute_input_silu); attention's result; mean and reciprocal
// deviation of the output norm; gated.
using FusedResult =
    std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor>;
using FusedForward = LayerSignature<FusedResult>;

// Indices of gradients and of their wanted flags.
enum LayerGradient : size_t {
  kX,
  kInputNormWeight,
  kInputNormBias,
  kUvqkWeight,
  kUvqkBias,
  kOutputNormWeight,
  kOutputNormBias,
  kOutputWeight,
  kOutputBias,
  kPositionBias,
  kTimeBias,
  kLayerGradients
};
using WantedGradients = std::array<bool, kLayerGradients>;
// Undefined if not wanted. float32 for weights and biases of products and for attention's biases.
using FusedGradients = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor,
                                  Tensor, Tensor, Tensor>;
// Arguments: the result's gradient, the wanted flags, and forward's outputs except the result.
using FusedBackward =
    LayerSignature<FusedGradients, const Tensor&, WantedGradients, const Tensor&, const Tensor&,
                   const OptionalTensor&, const Tensor&, const OptionalTensor&, const Tensor&,
                   const Tensor&, const Tensor&, const Tensor&>;

}  // namespace seqfuse::ops
