#include "models/common/init.h"

#include <ATen/CPUGeneratorImpl.h>

#include <cmath>

namespace seqfuse::models {

Initializer::Initializer(std::optional<uint64_t> seed, torch::ScalarType dtype) : dtype_(dtype) {
  if (seed) generator_ = at::make_generator<at::CPUGeneratorImpl>(*seed);
}

at::Tensor Initializer::zeros(int64_t size) {
  return torch::zeros({size}, dtype_);
}

at::Tensor Initializer::ones(int64_t size) {
  return torch::ones({size}, dtype_);
}

at::Tensor Initializer::uniform(at::IntArrayRef shape, double bound) {
  const at::Tensor values = torch::empty(shape, dtype_);
  return generator_ ? values.uniform_(-bound, bound, generator_) : values;
}

at::Tensor Initializer::normal(at::IntArrayRef shape, double std) {
  const at::Tensor values = torch::empty(shape, dtype_);
  return generator_ ? values.normal_(0, std, generator_) : values;
}

at::Tensor Initializer::truncated_normal(at::IntArrayRef shape, double std) {
  // Inverse transform: u uniform over the kept part of the distribution, then erfinv.
  const double kept = std::erf(2 / std / std::sqrt(2.0));
  const at::Tensor values = uniform(shape, kept);
  if (!generator_) return values;
  return values.erfinv_().mul_(std * std::sqrt(2.0)).clamp_(-2, 2);
}

at::Tensor Initializer::xavier_uniform(int64_t in, int64_t out) {
  return uniform({in, out}, std::sqrt(6.0 / static_cast<double>(in + out)));
}

}  // namespace seqfuse::models
