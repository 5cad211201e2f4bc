// A GPU that runs out of memory in the middle of training.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <string>

#include "base/error.h"
#include "tests/missing_gpu.h"
#include "tests/models/training_fixture.h"
#include "training/device/device.h"

#ifdef SEQFUSE_HAS_CUDA
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDACachingAllocator.h>
#endif

namespace seqfuse::training::out_of_memory_cuda_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class OutOfMemoryCuda : public TrainingLoop {
 protected:
  void SetUp() override {
    if (const char* why = test::missing_gpu()) GTEST_SKIP() << why;
    set_arithmetic(at::Device(at::kCUDA, 0), training_config().trainer);
  }

  std::shared_ptr<TaskModel> model_on_gpu(const config::Config& config) {
    auto model = make_model(config);
    model->to(at::Device(at::kCUDA, 0));
    return model;
  }

  // Running out of memory in step 7 is reported, and the resumed run equals an undisturbed one.
  void expect_saved_and_resumed(const config::Config& config, TaskModel& model,
                                const testing::Matcher<std::string>& says) {
    try {
      train(config, "run", model);
      FAIL() << "went on";
    } catch (const Error& error) {
      EXPECT_THAT(std::string(error.what()), AllOf(HasSubstr("out of memory in step 7"), says,
                                                   HasSubstr("the state after step 6 is saved")));
    }
    const auto undisturbed = model_on_gpu(config), resumed = model_on_gpu(config);
    train(config, "whole", *undisturbed);
    train(config, "run", *resumed);
    EXPECT_EQ(metrics("run"), metrics("whole"));
    expect_same_weights(*resumed, *undisturbed);
  }
};

TEST_F(OutOfMemoryCuda, SavesTheStateBeforeTheStepAndIsResumed) {
  config::Config config = training_config();
  config.network.dtype_str = config::ComputeType::float32;
  // Step 7 requests more memory than there is, as a much longer batch would.
  Disturbed model(model_on_gpu(config), 7, [](TaskModel::Loss& loss) {
    const auto everything =
        torch::empty({int64_t{1} << 42}, loss.sum.options().dtype(torch::kByte));
    loss.sum = loss.sum + everything[0];
  });
  expect_saved_and_resumed(
      config, model,
      AllOf(HasSubstr("Tried to allocate 4096.00 GiB"), HasSubstr("has a total capacity of"),
            HasSubstr("is free"), HasSubstr("NetworkArgs.dtype_str = 'bfloat16'")));
}

// The norm is computed before any weight changes.
TEST_F(OutOfMemoryCuda, InTheGradientNormSavesTheStateBeforeTheStepAndIsResumed) {
  config::Config config = training_config();
  config.network.dtype_str = config::ComputeType::float32;
  const auto inner = model_on_gpu(config);
  Disturbed model(inner, 7, [&](TaskModel::Loss& loss) { spoil_table_gradient(*inner, loss); });
  expect_saved_and_resumed(config, model, HasSubstr("Tried to allocate"));
}

#ifdef SEQFUSE_HAS_CUDA
// Allocates nothing extra: the memory left is too little for a step's activations.
TEST_F(OutOfMemoryCuda, ABatchThatDoesNotFitSavesWithWhatIsLeft) {
  config::Config config = training_config("hstu");
  config.network.dtype_str = config::ComputeType::float32;
  config.network.hidden_size = 64;
  config.network.kv_channels = 32;
  config.trainer.train_batch_size = 30;
  config.retrieval.num_negatives = 200'000;  // per position; makes the step large
  const auto model = model_on_gpu(config);
  c10::cuda::CUDACachingAllocator::emptyCache();
  const auto total = static_cast<double>(at::cuda::getDeviceProperties(0)->totalGlobalMem);
  c10::cuda::CUDACachingAllocator::setMemoryFraction(64e6 / total, 0);
  std::string message = "went on";
  try {
    train(config, "run", *model);
  } catch (const Error& error) {
    message = error.what();
  }
  c10::cuda::CUDACachingAllocator::setMemoryFraction(1, 0);
  EXPECT_THAT(message, AllOf(HasSubstr("out of memory in step 1"), HasSubstr("Tried to allocate"),
                             HasSubstr("the state after step 0 is saved"),
                             HasSubstr("RetrievalArgs.num_negatives (now 200000)")));
  const auto resumed = model_on_gpu(config);
  EXPECT_EQ(train(config, "run", *resumed).step, 10);
}
#endif

}  // namespace
}  // namespace seqfuse::training::out_of_memory_cuda_test
