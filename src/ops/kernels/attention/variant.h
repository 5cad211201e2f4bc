// The compiled kernels of an architecture as rows of a table, which choose_config picks from.
#pragma once

#include <span>

#include "ops/kernels/attention/config.h"

namespace seqfuse::ops::attention {

struct Arguments;
using Kernel = void (*)(Arguments);

enum class Needs { nothing, aligned_inputs, aligned_inputs_and_outputs };

struct Variant {
  Config config;
  bool adds_bias;   // takes problems with bias; slower for those without
  Needs needs;      // of the problem's alignment
  int block_bytes;  // the least shared memory of a block on the devices that it is for
  Kernel f16, bf16;
  // Writes dq from its sums, after a backward kernel that adds to them; null: there are none.
  Kernel finish_dq_f16 = nullptr, finish_dq_bf16 = nullptr;
};

// Config of a kernel by its template's Shape.
template <class Shape>
constexpr Config config_of(const char* kernel, int architecture, int head_dim) {
  return {.kernel = kernel,
          .architecture = architecture,
          .head_dim = head_dim,
          .tile_queries = Shape::kM,
          .tile_keys = Shape::kN,
          .stages = Shape::kStages,
          .warps = Shape::kThreads / 32,
          .blocks = Shape::kBlocks,
          .shared_bytes = Shape::kSharedBytes};
}

// The first variant that takes the problem on the device.
const Variant& choose_variant(const Problem& problem, const Device& device);

namespace sm80 {

// The kernels of a pass for a head_dim of 32, 64, 128 or 256, the preferred first. The last takes
// every problem.
std::span<const Variant> variants(Pass pass, int head_dim);

// Instantiated in a file for each head_dim, so that they compile in parallel.
template <int kHeadDim>
std::span<const Variant> forward_variants();
template <int kHeadDim>
std::span<const Variant> backward_variants();
template <int kHeadDim>
std::span<const Variant> backward_queries_variants();
template <int kHeadDim>
std::span<const Variant> bias_gradient_variants();

}  // namespace sm80
}  // namespace seqfuse::ops::attention
