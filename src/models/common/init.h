// Initial weights from a seed: the same on every machine and for any number of threads.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <optional>

namespace seqfuse::models {

// Draws a model's weights in the order of the calls.
class Initializer {
 public:
  // Without a seed nothing is drawn: random weights are uninitialised until weights are loaded.
  Initializer(std::optional<uint64_t> seed, torch::ScalarType dtype);

  at::Tensor zeros(int64_t size);
  at::Tensor ones(int64_t size);
  // Uniform in [-bound, bound).
  at::Tensor uniform(at::IntArrayRef shape, double bound);
  at::Tensor normal(at::IntArrayRef shape, double std);
  // Normal, cut off at -2 and 2 (not at multiples of std).
  at::Tensor truncated_normal(at::IntArrayRef shape, double std);
  // Uniform with bound sqrt(6 / (in + out)); weight [in, out].
  at::Tensor xavier_uniform(int64_t in, int64_t out);

 private:
  std::optional<at::Generator> generator_;
  torch::ScalarType dtype_;
};

}  // namespace seqfuse::models
