// A predictor on a GPU: from several threads, and against one on the CPU.
#include <gtest/gtest.h>

#include "tests/missing_gpu.h"
#include "tests/models/predictor_checks.h"

namespace seqfuse::serving::predictor_cuda_test {
namespace {

using models::hstu::Task;

class PredictorCuda : public testing::Test {
 protected:
  void SetUp() override {
    if (const char* why = test::missing_gpu()) GTEST_SKIP() << why;
  }

  const at::Device gpu_ = at::Device(at::kCUDA, 0);
};

TEST_F(PredictorCuda, ThreadsAtOnceGetWhatOneGets) {
  expect_threads_agree(Task::retrieval, "hstu", gpu_);
  expect_threads_agree(Task::retrieval, "hstu_research", gpu_);
  expect_threads_agree(Task::ranking, "hstu", gpu_);
}

// The same float32 model on both devices; sums differ in their last bits.
TEST_F(PredictorCuda, SaysWhatTheCpuSays) {
  constexpr double kTolerance = 1e-4;
  for (const std::string architecture : {"hstu", "hstu_research"}) {
    models::hstu::ModelSpec spec = random_model(Task::retrieval, architecture)->spec();
    spec.network.dtype_str = config::ComputeType::float32;
    const auto make = [&](at::Device device) {
      auto model = models::hstu::make_task_model(spec, 1);
      models::hstu::randomize(*model);
      return std::make_shared<const Predictor>(model, device);
    };
    const auto cpu = make(at::kCPU), gpu = make(gpu_);
    EXPECT_EQ(gpu->device(), gpu_);
    EXPECT_EQ(gpu->catalogue().rows().device(), gpu_);
    const data::Batch batch = request_batch(2, 1);
    EXPECT_LT(models::hstu::largest_difference(gpu->queries(batch).cpu(), cpu->queries(batch)),
              kTolerance);
    const ItemLists seen = some_seen(batch.batch_size());
    const TopItems on_gpu = gpu->top_items(batch, 6, seen), on_cpu = cpu->top_items(batch, 6, seen);
    for (int64_t b = 0; b < on_cpu.size(); ++b) {
      ASSERT_EQ(on_gpu[b].size(), on_cpu[b].size());
      for (size_t i = 0; i < on_cpu[b].size(); ++i) {
        EXPECT_NEAR(on_gpu[b][i].score, on_cpu[b][i].score, kTolerance);
      }
    }
  }
}

}  // namespace
}  // namespace seqfuse::serving::predictor_cuda_test
