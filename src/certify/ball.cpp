#include "certify/ball.h"

#include <cmath>

#include "certify/rounding.h"

namespace seqfuse::certify {
using at::Tensor;

Tensor Ball::eps_tensor(int64_t dims, at::ScalarType dtype) const {
  std::vector<int64_t> shape(static_cast<size_t>(dims), 1);
  shape[0] = batch();
  const Tensor values =
      eps_on_device.defined() ? eps_on_device : at::tensor(eps, at::kDouble).to(center.device());
  return (values * (1 + 4 * Rounding::of(dtype).unit)).to(dtype).view(shape);
}

Tensor Ball::position_tensor() const {
  if (positions_on_device.defined()) return positions_on_device;
  return at::tensor(positions, at::kLong).to(center.device());
}

Tensor dual_norm(const Tensor& x, int64_t dim, Norm norm) {
  if (norm == Norm::l1) return x.abs().amax(dim);
  const Rounding rounding = Rounding::of(x.scalar_type());
  const Tensor result = norm == Norm::linf ? x.abs().sum(dim) : at::linalg_vector_norm(x, 2, {dim});
  // Squares underflow long before their roots do.
  const double lost = norm == Norm::l2 ? std::sqrt(rounding.tiny) : rounding.tiny;
  return result.mul_(1 + 2 * rounding.gamma(x.size(dim) + 8)).add_(lost);
}

}  // namespace seqfuse::certify
