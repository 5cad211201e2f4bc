// Rotary positions: pairs of dimensions (i, i + dims / 2) rotated by position * frequency_i.
#pragma once

#include <torch/types.h>

#include <cstdint>

namespace seqfuse::kv_cache {

// A model's frequencies: base^(-2 i / dims) in float32, by the framework's operations, as in training.
// Angles are float64 products of an integer position and a frequency; their error is below position *
// 2^-53: 1e-10 at a million tokens, 1e-7 at a billion.
//
// In 16 bits, and below kFrameworkPositions, cosines and sines are those of the framework to the bit: of
// the product rounded to float32, an error of 1.3e-4 at most.
inline constexpr int64_t kFrameworkPositions = 4096;

class Rotary {
 public:
  // dims: even; the first dimensions of a head, the others pass through.
  Rotary(int64_t dims, double base, at::Device device);

  struct Angles {
    at::Tensor cos, sin;  // [..., dims / 2]
  };
  // positions: int64, any shape, on the device.
  Angles angles(const at::Tensor& positions, at::ScalarType dtype) const;

  // x [..., head_dim] with angles that broadcast to [..., dims / 2]. Returns a new tensor.
  at::Tensor rotate(const at::Tensor& x, const Angles& angles) const;

  const at::Tensor& frequencies() const { return frequencies_; }  // float64 [dims / 2]

 private:
  int64_t dims_;
  at::Tensor frequencies_;
};

}  // namespace seqfuse::kv_cache
