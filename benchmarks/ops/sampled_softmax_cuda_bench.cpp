// Sampled softmax on CUDA, forward and backward to states and table: ours, with the table's
// gradient by atomics or in a fixed order, and the same loss over gathered rows [T, 1 + K, D] in
// plain PyTorch. Shapes: a training step of ml-1m, whose table stays in L2, and a table of a
// million rows. The copy moves the minimum memory traffic: ids, coefficients written and read,
// states and their gradients.
#include "benchmarks/ops/cuda_bench.h"
#include "ops/torch/ops.h"

#ifdef SEQFUSE_HAS_CUDA
namespace seqfuse::bench::sampled_softmax_cuda_bench {
namespace {

struct Shape {
  int64_t positions, negatives, rows, dim;
};

struct Ids {
  Tensor targets, negatives, all, collision;

  explicit Ids(const Shape& s) {
    const auto longs = at::TensorOptions().device(at::kCUDA).dtype(at::kLong);
    targets = at::randint(1, s.rows, {s.positions}, longs);
    negatives = ops::sample_uniform(at::arange(1, s.rows, longs), s.positions, s.negatives, 1);
    all = at::cat({targets.unsqueeze(1), negatives.to(at::kLong)}, 1);
    collision = all == targets.unsqueeze(1);
    collision.select(1, 0).fill_(false);
  }
};

Tensor plain(const std::vector<Tensor>& in, const Ids& ids) {
  const Tensor rows =
      in[1].index_select(0, ids.all.flatten()).view({ids.all.size(0), -1, in[1].size(1)});
  const Tensor logits = at::einsum("td,tkd->tk", {in[0], rows}) / .05;
  return -at::log_softmax(logits.masked_fill(ids.collision, -5e4), 1).select(1, 0);
}

void add(const Shape& s, bool deterministic) {
  const std::string shape = std::to_string(s.positions) + "x" + std::to_string(1 + s.negatives) +
                            "x" + std::to_string(s.dim) + "/" + std::to_string(s.rows) + "_rows";
  const auto pairs = static_cast<double>(s.positions * (1 + s.negatives));
  const double bytes = pairs * 16 + static_cast<double>(s.positions * s.dim) * 16;
  const auto make = [=](bool step) {
    const Ids ids(s);
    const auto options = at::TensorOptions().device(at::kCUDA);
    const std::vector<Tensor> in{ops::l2_normalize(at::randn({s.positions, s.dim}, options), 1e-6),
                                 ops::l2_normalize(at::randn({s.rows, s.dim}, options), 1e-6)};
    const auto ours = [=](const std::vector<Tensor>& leaves) {
      return ops::sampled_softmax_loss(leaves[0], leaves[1], ids.targets, ids.negatives, .05);
    };
    const auto torch = [=](const std::vector<Tensor>& leaves) { return plain(leaves, ids); };
    if (!step) return std::pair<Work, Work>{[=] { ours(in); }, [=] { torch(in); }};
    const Work backward = with_backward(ours, in);
    const Work in_mode = [=] {
      at::globalContext().setDeterministicAlgorithms(deterministic, false);
      backward();
      at::globalContext().setDeterministicAlgorithms(false, false);
    };
    return std::pair<Work, Work>{in_mode, with_backward(torch, in)};
  };
  if (!deterministic) {
    compare_cuda("sampled_softmax/cuda/forward/" + shape, bytes / 2, [=] { return make(false); });
  }
  compare_cuda(
      std::string("sampled_softmax/cuda/step") + (deterministic ? "_deterministic/" : "/") + shape,
      bytes, [=] { return make(true); });
}

[[maybe_unused]] const bool added = [] {
  for (const bool deterministic : {false, true}) {
    add({25600, 128, 3707, 50}, deterministic);
    add({25600, 128, 3707, 64}, deterministic);
    add({4096, 128, 1000000, 256}, deterministic);
  }
  return true;
}();

}  // namespace
}  // namespace seqfuse::bench::sampled_softmax_cuda_bench
#endif
