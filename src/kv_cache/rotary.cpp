#include "kv_cache/rotary.h"

#include <cmath>

#include "base/error.h"

namespace seqfuse::kv_cache {
using at::Tensor;

Rotary::Rotary(int64_t dims, double base, at::Device device) : dims_(dims) {
  SEQFUSE_CHECK(dims > 0 && dims % 2 == 0, "{} rotary dimensions; expected an even number", dims);
  Tensor frequencies = at::empty({dims / 2}, at::kDouble);
  auto values = frequencies.accessor<double, 1>();
  for (int64_t i = 0; i < dims / 2; ++i) {
    const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(dims);
    values[i] = static_cast<float>(std::pow(base, exponent));
  }
  frequencies_ = frequencies.to(device);
}

Rotary::Angles Rotary::angles(const Tensor& positions, at::ScalarType dtype) const {
  const Tensor angle = positions.to(at::kDouble).unsqueeze(-1) * frequencies_;
  return {angle.cos().to(dtype), angle.sin().to(dtype)};
}

Tensor Rotary::rotate(const Tensor& x, const Angles& angles) const {
  const int64_t half = dims_ / 2;
  const Tensor a = x.slice(-1, 0, half), b = x.slice(-1, half, dims_);
  return at::cat(
      {a * angles.cos - b * angles.sin, b * angles.cos + a * angles.sin, x.slice(-1, dims_)}, -1);
}

}  // namespace seqfuse::kv_cache
