// The perturbations that bounds cover: the input rows of some positions move, each within a ball.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

#include "ops/torch/tensor_bounds.h"

namespace seqfuse::certify {

using ops::bounds::Norm;  // l1, l2, linf

// A batch of B inputs of N rows. Input b may be any center[b] + d, where d is 0 outside the positions and
// the norm of d[n] is at most eps[b] at each of them.
struct Ball {
  at::Tensor center;               // [B, N, H], rounded once; the dtype of the bounds
  std::vector<int64_t> positions;  // rising; 1 or more
  Norm norm = Norm::l2;
  std::vector<double> eps;  // B values of 0 or more
  // eps and positions on the center's device, float64 and int64, which a recorded computation reads: their
  // values may change from replay to replay. Made of the above where undefined.
  at::Tensor eps_on_device, positions_on_device;

  int64_t batch() const { return center.size(0); }
  int64_t width() const { return center.size(2); }
  // eps on the center's device, rounded upwards, of `dims` dimensions, B in the first one.
  at::Tensor eps_tensor(int64_t dims, at::ScalarType dtype) const;
  at::Tensor position_tensor() const;  // int64, on the center's device
};

// The dual norm over a dimension, rounded upwards: the largest scalar product with a vector of norm 1.
at::Tensor dual_norm(const at::Tensor& x, int64_t dim, Norm norm);

}  // namespace seqfuse::certify
