// Margins of many inputs of one shape. On a GPU the computation is recorded as a CUDA graph, since it is made of
// many small kernels, whose launches take longer than they do.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "certify/margins.h"

namespace seqfuse::certify {

// The positions that move and the norm of their movement, the same for all inputs.
struct Perturbation {
  std::vector<int64_t> positions;  // Ball::positions
  Norm norm = Norm::l2;
};

class RecordedMargins {
 public:
  // graph must outlive it. Records unless the device has no graphs, the method is crown, which looks at
  // intermediate bounds on the host, or recording has failed for lack of memory.
  RecordedMargins(const Graph& graph, Perturbation perturbation, const MarginOptions& options);
  ~RecordedMargins();
  RecordedMargins(const RecordedMargins&) = delete;
  RecordedMargins& operator=(const RecordedMargins&) = delete;

  // margins() of one input, center [N, H], at each radius of eps. For each number of radii the first call
  // runs the computation, the second records it, and later ones replay it: all with the same results. Throws as
  // margins() does.
  Margins at_radii(const at::Tensor& center, const std::vector<double>& eps, int64_t label);

 private:
  struct Recorder;

  Ball ball(const at::Tensor& center, const std::vector<double>& eps) const;

  const Graph& graph_;
  Perturbation perturbation_;
  MarginOptions options_;
  std::unique_ptr<Recorder> recorder_;
};

}  // namespace seqfuse::certify
