#include "models/common/init.h"

#include <ATen/CPUGeneratorImpl.h>

#include <cmath>

namespace seqfuse::models {

Initializer::Initializer(uint64_t seed, torch::ScalarType dtype)
    : generator_(at::make_generator<at::CPUGeneratorImpl>(seed)), dtype_(dtype) {}

at::Tensor Initializer::zeros(int64_t size) {
  return torch::zeros({size}, dtype_);
}

at::Tensor Initializer::ones(int64_t size) {
  return torch::ones({size}, dtype_);
}

at::Tensor Initializer::uniform(at::IntArrayRef shape, double bound) {
  return torch::empty(shape, dtype_).uniform_(-bound, bound, generator_);
}

at::Tensor Initializer::normal(at::IntArrayRef shape, double std) {
  return torch::empty(shape, dtype_).normal_(0, std, generator_);
}

at::Tensor Initializer::truncated_normal(at::IntArrayRef shape, double std) {
  // Inverse transform: u uniform over the part of the distribution that is kept, then erfinv.
  const double kept = std::erf(2 / std / std::sqrt(2.0));
  at::Tensor values = torch::empty(shape, dtype_).uniform_(-kept, kept, generator_);
  return values.erfinv_().mul_(std * std::sqrt(2.0)).clamp_(-2, 2);
}

at::Tensor Initializer::xavier_uniform(int64_t in, int64_t out) {
  return uniform({in, out}, std::sqrt(6.0 / static_cast<double>(in + out)));
}

}  // namespace seqfuse::models
