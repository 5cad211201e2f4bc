#include "kv_cache/rotary.h"

#include "base/error.h"

namespace seqfuse::kv_cache {
using at::Tensor;

Rotary::Rotary(int64_t dims, double base, at::Device device) : dims_(dims) {
  SEQFUSE_CHECK(dims > 0 && dims % 2 == 0, "{} rotary dimensions; expected an even number", dims);
  const Tensor exponents = at::arange(0, dims, 2, at::kFloat) / dims;
  frequencies_ = at::pow(base, exponents).reciprocal().to(at::kDouble).to(device);
}

Rotary::Angles Rotary::angles(const Tensor& positions, at::ScalarType dtype) const {
  const Tensor angle = positions.to(at::kDouble).unsqueeze(-1) * frequencies_;
  if (c10::elementSize(dtype) > 2) return {angle.cos().to(dtype), angle.sin().to(dtype)};
  // Products of an integer and a float32 are exact in float64 here, so this is the float32 product.
  const Tensor single = angle.to(at::kFloat);
  const Tensor as_framework = (positions < kFrameworkPositions).unsqueeze(-1);
  return {at::where(as_framework, single.cos(), angle.cos().to(at::kFloat)).to(dtype),
          at::where(as_framework, single.sin(), angle.sin().to(at::kFloat)).to(dtype)};
}

Tensor Rotary::rotate(const Tensor& x, const Angles& angles) const {
  const int64_t half = dims_ / 2;
  const Tensor a = x.slice(-1, 0, half), b = x.slice(-1, half, dims_);
  return at::cat(
      {a * angles.cos - b * angles.sin, b * angles.cos + a * angles.sin, x.slice(-1, dims_)}, -1);
}

}  // namespace seqfuse::kv_cache
