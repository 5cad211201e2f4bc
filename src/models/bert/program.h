// Programs: ways to run the fifteen operators of a layer (fusion/graph.h), as segments of neighbours.
#pragma once

#include <torch/types.h>

#include <array>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "fusion/graph.h"
#include "models/bert/config.h"
#include "models/bert/rows.h"
#include "models/bert/weights.h"

namespace seqfuse::models::bert {

using fusion::index_of;
using fusion::kGraph;
using fusion::kOps;
using fusion::Op;

// The inputs of the segments of one layer.
struct LayerRun {
  const Config& config;
  const LayerWeights& weights;
  const Rows& rows;
  at::Tensor dense_mask;                 // undefined where no segment reads it
  at::Tensor input;                      // [R, H]
  std::array<at::Tensor, kOps> outputs;  // of operators that ended a segment and are still needed

  const at::Tensor& of(Op op) const { return outputs[static_cast<size_t>(op)]; }
};

// Runs the operators first to last and returns the output of the last one. What is between them is not
// kept: no later segment may read it.
struct Segment {
  Op first, last;
  std::function<at::Tensor(const LayerRun& run)> run;
  bool reads_dense_mask = false;
};

class Program {
 public:
  // Throws Error unless the segments are all operators in order, and none reads what another one keeps
  // to itself.
  explicit Program(std::vector<Segment> segments);

  std::span<const Segment> segments() const { return segments_; }
  bool needs_dense_mask() const;

  // The output of a layer [R, H]. dense_mask: of the rows, if needed. Values are freed after their last
  // reader.
  at::Tensor run_layer(const Config& config, const LayerWeights& weights, const Rows& rows,
                       const at::Tensor& dense_mask, const at::Tensor& input) const;

 private:
  std::vector<Segment> segments_;
  std::vector<std::vector<int>>
      last_reads_;                  // of each segment: the operators whose value ends there
  std::vector<std::string> names_;  // of each segment: its operators, for profilers
};

// Each operator alone, by plain ATen: the reference, for any dtype and device.
const Program& unfused();

// Groups written by hand: gemm0 + bias0, attention (QK to transpose), gemm1, bias1 + residual + norm,
// gemm2, bias2 + activation, gemm3, bias3 + residual + norm. For the dtypes of ops/torch/encoder.h.
const Program& fused();

}  // namespace seqfuse::models::bert
