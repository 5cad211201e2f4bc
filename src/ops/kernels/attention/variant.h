// An architecture's compiled kernels as rows of a table from which choose_config picks.
#pragma once

#include <span>

#include "ops/kernels/attention/config.h"

namespace seqfuse::ops::attention {

struct Arguments;
using Kernel = void (*)(Arguments);

enum class Needs { nothing, aligned_inputs, aligned_inputs_and_outputs };

struct Variant {
  Config config;
  bool adds_bias;   // supports bias; slower without one
  Needs needs;      // required alignment of the problem
  int block_bytes;  // least shared memory per block of the devices it is for
  Kernel f16, bf16;
  // Converts sums to dq, after a backward kernel that leaves sums; null: there are none.
  Kernel finish_dq_f16 = nullptr, finish_dq_bf16 = nullptr;
};

// The Config of a kernel with this template Shape.
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

// The first variant that runs the problem on the device.
const Variant& choose_variant(const Problem& problem, const Device& device);

namespace sm80 {

// The kernels of a pass for a head_dim of 32, 64, 128 or 256, preferred ones first. The last one
// runs every problem.
std::span<const Variant> variants(Pass pass, int head_dim);

// Instantiated in one file per head_dim, which compile in parallel.
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
