// Bounds of a classifier's margins over a ball, and the largest certified radius.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <optional>
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

// Of output[label] - output[other], over all other classes: float64 [B, C], 0 in the column of the label.
// lower is -infinity and upper infinity where numbers became too large.
struct Margins {
  at::Tensor lower, upper;
};

// The graph's output is [1, C]; labels: B classes. No bound is looser than that of interval arithmetic.
// Throws Error where memory would not suffice, with the methods that need less.
Margins margins(const Graph& graph, const Ball& ball, const std::vector<int64_t>& labels,
                const MarginOptions& options);

// For each input of the batch the smallest lower margin.
std::vector<double> smallest_margins(const Margins& margins, const std::vector<int64_t>& labels);

struct SearchOptions {
  double tolerance = 1e-3;  // relative
  int64_t together = 1;     // radii that are tried at once, as a batch
  double first = 0.01, smallest = 1e-9, largest = 1e9;
};

struct Radius {
  double certified = 0;  // 0: not even the smallest one
  // The next one that was tried and could not be certified; infinity: all could, up to the largest one.
  double not_certified = 0;
  int64_t tried = 0;
};

// certify: for radii the smallest lower margins. A radius counts if its margin is above 0. Nothing if
// `go_on` returns false, which is asked before each batch.
std::optional<Radius> largest_radius(
    const std::function<std::vector<double>(const std::vector<double>&)>& certify,
    const SearchOptions& options, const std::function<bool()>& go_on);

}  // namespace seqfuse::certify
