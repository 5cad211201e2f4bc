// Bounds of a classifier's margins over a ball.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "certify/ball.h"
#include "certify/graph.h"

namespace seqfuse::certify {

enum class Method {
  ibp,        // intervals
  crown_baf,  // linear bounds forwards, then backwards from the margins
  crown       // linear bounds backwards from every node that needs them
};

const char* name_of(Method method);

struct MarginOptions {
  Method method = Method::crown_baf;
  int64_t block_bytes = int64_t{1} << 28;  // of the rows that go backwards together
};

// Bounds of output[label] - output[other] for all classes: float64 [B, C], 0 in the column of the label.
// lower is -infinity and upper infinity where numbers became too large.
struct Margins {
  at::Tensor lower, upper;
};

// The graph's output is [1, C]; labels: B classes. No bound is looser than that of interval arithmetic.
// Throws Error where memory would not suffice, with the methods that need less.
Margins margins(const Graph& graph, const Ball& ball, const std::vector<int64_t>& labels,
                const MarginOptions& options);

// The part of it that is computed on the device of the ball, without waiting for it: float64 [B, 2 C], lower
// bounds of output[label] - output[other], then of output[other] - output[label]; -infinity where numbers became
// too large. labels: int64 [B] on that device. Waits for the device with Method::crown.
at::Tensor lower_margins(const Graph& graph, const Ball& ball, const at::Tensor& labels,
                         const MarginOptions& options);
// The margins from it, on the CPU; those of interval arithmetic where it is -infinity.
Margins finished_margins(at::Tensor lower, const Graph& graph, const Ball& ball,
                         const std::vector<int64_t>& labels, const MarginOptions& options);

// For each input of the batch the smallest lower margin.
std::vector<double> smallest_margins(const Margins& margins, const std::vector<int64_t>& labels);

}  // namespace seqfuse::certify
