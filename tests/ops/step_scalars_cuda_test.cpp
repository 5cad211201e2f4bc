#include <limits>
#include <vector>

#include "ops/torch/step_scalars.h"
#include "tests/ops/cuda_test.h"

namespace seqfuse::step_scalars_cuda_test {
namespace {

using at::Tensor;
using namespace seqfuse::test;
using ops::StepScalars;

class StepScalarsCudaTest : public CudaTest {};

TEST_F(StepScalarsCudaTest, AreTheCpusToTheBitWithoutWaiting) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<float> norms{3, .3F, 1e-30F, 0, 1e30F, kInfinity, 7, std::nanf("")};
  for (const bool scales_loss : {false, true}) {
    const StepScalars here(at::kCPU, 65536), there(at::kCUDA, 65536);
    for (size_t step = 0; step < norms.size(); ++step) {
      for (const StepScalars* scalars : {&here, &there}) {
        scalars->norm.fill_(norms[step]);
        scalars->step_loss.fill_(step == 6 ? kInfinity : .1F);
        const NoSynchronisation mode;
        ops::start_step(*scalars, static_cast<int64_t>(step), 1. / 13859, .001);
        ops::finish_step(*scalars, .01, scales_loss);
      }
      const auto all = [](const StepScalars& s) {
        return at::stack({s.loss_sum, s.step_loss.to(at::kDouble), s.norm.to(at::kDouble),
                          s.bad_step.to(at::kDouble), s.bad_loss.to(at::kDouble),
                          s.factor.to(at::kDouble), s.skip.to(at::kDouble),
                          s.learning_rate.to(at::kDouble)})
            .cpu();
      };
      EXPECT_TRUE(at::allclose(all(there), all(here), /*rtol=*/0, /*atol=*/0, /*equal_nan=*/true))
          << "step " << step << ": " << all(there) << " for " << all(here);
    }
  }
}

}  // namespace
}  // namespace seqfuse::step_scalars_cuda_test
