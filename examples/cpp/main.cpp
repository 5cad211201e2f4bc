// The C++ API: attention over jagged tensors, a training step, recommendations.
// usage: example DATASET CONFIG.gin RUN USER, with a retrieval run that `seqfuse train` made.
#include <seqfuse/ops.h>
#include <seqfuse/recommender.h>
#include <seqfuse/training.h>

#include <cstdio>
#include <exception>

int main(int argc, char** argv) try {
  if (argc != 5) return std::fputs("usage: example DATASET CONFIG.gin RUN USER\n", stderr), 2;

  // Two sequences of 3 and 5 rows, concatenated; 2 heads of 8 columns.
  const at::Tensor offsets = at::tensor({0, 3, 8}, at::kLong);
  const at::Tensor q = at::randn({8, 2, 8}).requires_grad_(), k = at::randn({8, 2, 8}),
                   v = at::randn({8, 2, 8});
  const at::Tensor attended =
      seqfuse::ops::hstu_attention(q, k, v, offsets, offsets, {.scaling_seqlen = 5});
  attended.sum().backward();
  std::printf("attention: [%ld, %ld, %ld], |dq| = %.4f\n", attended.size(0), attended.size(1),
              attended.size(2), q.grad().norm().item<double>());

  seqfuse::Trainer trainer({.task = "retrieval", .dataset = argv[1], .config_file = argv[2]});
  const seqfuse::StepResult step = trainer.step();
  std::printf("step %ld of %ld: loss %.4f over %ld positions\n", step.step, trainer.total_steps(),
              step.loss, step.positions);

  const seqfuse::Recommender recommender(argv[3]);
  for (const auto& best : recommender.recommend({.user = argv[4], .top_k = 3})) {
    std::printf("%s %.4f\n", best.item.c_str(), best.scores[0].second);
  }
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "example: %s\n", error.what());
  return 1;
}
