// Points of a ball: random ones, and ones that a gradient leads to.
#pragma once

#include <torch/autograd.h>
#include <torch/types.h>

#include "certify/ball.h"
#include "certify/graph.h"

namespace seqfuse::test {

// Scales each row of the last dimension to a norm of at most eps, `full`: of exactly eps.
inline at::Tensor projected(const at::Tensor& moves, certify::Norm norm, double eps, bool full) {
  if (norm == certify::Norm::linf && !full) return moves.clamp(-eps, eps);
  const at::Tensor size = (norm == certify::Norm::l1   ? moves.abs().sum(-1, true)
                           : norm == certify::Norm::l2 ? moves.norm(2, {-1}, true)
                                                       : moves.abs().amax(-1, true))
                              .clamp_min(1e-300);
  const at::Tensor scale = eps / size * (1 - 1e-12);
  return moves * (full ? scale : scale.clamp_max(1));
}

// center [N, H] with moves [S, P, H] at the positions: [S, N, H].
inline at::Tensor moved(const at::Tensor& center, const certify::Ball& ball,
                        const at::Tensor& moves) {
  return center.unsqueeze(0)
      .expand({moves.size(0), -1, -1})
      .index_add(1, ball.position_tensor(), moves);
}

// Half on the sphere, of which half along one coordinate, the others inside.
inline at::Tensor random_moves(const certify::Ball& ball, int64_t samples) {
  const auto positions = static_cast<int64_t>(ball.positions.size());
  const double eps = ball.eps[0];
  at::Tensor moves = at::randn({samples, positions, ball.width()}, at::kDouble);
  const at::Tensor sparse =
      at::one_hot(at::randint(ball.width(), {samples / 4, positions}, at::kLong), ball.width()) *
      moves.narrow(0, 0, samples / 4);
  moves.narrow(0, 0, samples / 4).copy_(sparse);
  if (ball.norm == certify::Norm::linf) {
    moves.narrow(0, samples / 4, samples / 4).sign_();  // corners
  }
  moves = projected(moves, ball.norm, eps, true);
  moves.narrow(0, samples / 2, samples / 2)
      .mul_(at::rand({samples / 2, positions, 1}, at::kDouble));
  return moves;
}

// Leads `starts` random points by gradients to small (sign = 1) or large (-1) values of rows · output, where
// rows is [C].
inline at::Tensor attacked(const certify::Graph& graph, const certify::Ball& ball,
                           const at::Tensor& center, const at::Tensor& rows, double sign,
                           int64_t starts, int steps = 12) {
  at::Tensor moves = random_moves(ball, starts);
  for (int step = 0; step < steps; ++step) {
    moves = moves.detach().requires_grad_(true);
    const at::Tensor value = (graph.evaluate(moved(center, ball, moves)).squeeze(1) * rows).sum();
    const at::Tensor gradient = torch::autograd::grad({value}, {moves})[0];
    const double size = ball.eps[0] * (step < steps / 2 ? 1.0 : 0.25);
    at::Tensor direction;
    if (ball.norm == certify::Norm::linf) {
      direction = gradient.sign();
    } else if (ball.norm == certify::Norm::l2) {
      direction = gradient / gradient.norm(2, {-1}, true).clamp_min(1e-300);
    } else {
      direction = at::where(gradient.abs() == gradient.abs().amax(-1, true), gradient.sign(), 0.0);
    }
    moves = projected(moves.detach() - direction * (sign * size), ball.norm, ball.eps[0], false);
  }
  return moves.detach();
}

}  // namespace seqfuse::test
