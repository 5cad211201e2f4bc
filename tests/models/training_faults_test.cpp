// Training when memory, disk or data fail.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <torch/types.h>

#include <csignal>
#include <functional>
#include <memory>
#include <new>
#include <string>

#include "base/error.h"
#include "base/file.h"
#include "tests/models/training_fixture.h"
#include "training/checkpoint/run_writer.h"
#include "training/device/out_of_memory.h"

namespace seqfuse::training::training_faults_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// Throws like torch's CUDA allocator.
[[noreturn]] void fail_like_a_gpu() {
  throw c10::OutOfMemoryError(
      {__func__, __FILE__, __LINE__},
      "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.11 GiB of "
      "which 1.20 GiB is free. Process 7 has 77.90 GiB memory in use. Of the allocated memory "
      "70.00 "
      "GiB is allocated by PyTorch, and 5.00 GiB is reserved by PyTorch but unallocated. If "
      "reserved "
      "but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF");
}

// While it exists, no file may grow past this many bytes, like on a full disk.
class FileLimit {
 public:
  explicit FileLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{.rlim_cur = bytes, .rlim_max = before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  FileLimit(const FileLimit&) = delete;
  FileLimit& operator=(const FileLimit&) = delete;

 private:
  rlimit before_{};
  void (*handler_)(int);
};

class TrainingFaults : public TrainingLoop {
 protected:
  template <class E = Error>
  std::string error_of(const config::Config& config, TaskModel& model) {
    return error_of<E>(config, model, dataset_);
  }
  template <class E = Error>
  std::string error_of(const config::Config& config, TaskModel& model, const data::Dataset& dataset,
                       const Evaluate& evaluate = training::evaluate) {
    try {
      train(config, "run", model, dataset, evaluate);
    } catch (const E& error) {
      return error.what();
    }
    return "no such error";
  }
  std::string run() const { return (directory_.path() / "run").string(); }
  int64_t saved_step() const { return load_checkpoint(*newest_checkpoint(run())).step; }

  // The run resumes from the saved step as if nothing had happened.
  void expect_resumed_run_is_whole(const config::Config& config) {
    const auto undisturbed = make_model(config), resumed = make_model(config);
    train(config, "whole", *undisturbed);
    train(config, "run", *resumed);
    EXPECT_EQ(metrics("run"), metrics("whole"));
    expect_same_weights(*resumed, *undisturbed);
  }
};

TEST_F(TrainingFaults, OutOfGpuMemoryInAStepSavesTheStateBeforeIt) {
  config::Config config = training_config();
  config.trainer.gradient_accumulation_steps = 2;
  // The second batch of step 7, when the first has already left gradients.
  Disturbed model(make_model(config), 14, [](TaskModel::Loss&) { fail_like_a_gpu(); });
  const std::string message = error_of(config, model);
  EXPECT_THAT(
      message,
      AllOf(
          HasSubstr("out of memory in step 7 (batch of "), HasSubstr(" tokens)"),
          HasSubstr("Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.11 GiB of which "
                    "1.20 GiB is free"),
          Not(HasSubstr("PYTORCH_CUDA_ALLOC_CONF")), Not(HasSubstr("frame #")),
          HasSubstr("the state after step 6 is saved in " + run()),
          HasSubstr("--resume --gin TrainerArgs.train_batch_size=4 --gin "
                    "TrainerArgs.gradient_accumulation_steps=4"),
          HasSubstr("DatasetArgs.max_history_seqlen (now 12)"),
          HasSubstr("RetrievalArgs.num_negatives (now 5)")));
  EXPECT_EQ(saved_step(), 6);
  expect_resumed_run_is_whole(config);
}

TEST_F(TrainingFaults, TheAdviceOnBatchesIsTaken) {
  config::Config config = training_config();
  Disturbed model(make_model(config), 3, [](TaskModel::Loss&) { throw std::bad_alloc(); });
  EXPECT_THAT(error_of(config, model), HasSubstr("B of this machine's "));
  config.trainer.train_batch_size = 4;
  config.trainer.gradient_accumulation_steps = 2;
  const auto smaller = make_model(config);
  EXPECT_EQ(train(config, "run", *smaller).step, 10);
}

TEST_F(TrainingFaults, OutOfHostMemoryTellsHowMuchWasTried) {
  const config::Config config = training_config();
  Disturbed model(make_model(config), 7,
                  [](TaskModel::Loss&) { torch::empty({int64_t{1} << 48}, torch::kByte); });
  EXPECT_THAT(error_of(config, model),
              AllOf(HasSubstr("in step 7"), HasSubstr(": tried to allocate 281 TB; "),
                    HasSubstr("B are free")));
  EXPECT_EQ(saved_step(), 6);
}

TEST_F(TrainingFaults, OutOfMemoryInAnEvaluationSavesAndTheEvaluationIsMadeUpFor) {
  const config::Config config = training_config();
  const auto failing = [](auto&&...) -> Metrics { fail_like_a_gpu(); };
  EXPECT_THAT(error_of(config, *make_model(config), dataset_, failing),
              AllOf(HasSubstr("out of memory in the evaluation after step 4"),
                    HasSubstr("Tried to allocate 2.00 GiB"),
                    HasSubstr("the state after step 4 is saved in " + run()),
                    HasSubstr("--gin TrainerArgs.eval_batch_size=64")));
  EXPECT_EQ(saved_step(), 4);
  expect_resumed_run_is_whole(config);
}

TEST_F(TrainingFaults, OutOfMemoryOnAFullDiskNamesTheLastCheckpoint) {
  const config::Config config = training_config();
  std::unique_ptr<FileLimit> full;
  Disturbed model(make_model(config), 7, [&](TaskModel::Loss&) {
    full = std::make_unique<FileLimit>(1000);
    fail_like_a_gpu();
  });
  EXPECT_THAT(error_of(config, model),
              AllOf(HasSubstr("the state after step 6 could not be saved either"),
                    HasSubstr("the last checkpoint is " + run() + "/checkpoints/step_4")));
  full.reset();
  EXPECT_EQ(saved_step(), 4);
  expect_resumed_run_is_whole(config);
}

TEST_F(TrainingFaults, OutOfMemoryInTheUpdateSavesNothingAndGoesBackToTheLastCheckpoint) {
  config::Config config = training_config();
  config.optimizer.average_decay = 0.7;
  auto inner = make_model(config);
  models::Model& module = *inner;
  torch::Tensor first, last;
  Disturbed model(std::move(inner), 7, [&](TaskModel::Loss& loss) {
    first = module.parameters().front().detach().clone();
    last = module.parameters().back().detach().clone();
    spoil_last_gradient(module, loss);
  });
  EXPECT_THAT(error_of(config, model),
              AllOf(HasSubstr("out of memory in step 7 (batch of "), HasSubstr("tried to allocate"),
                    HasSubstr("the weights may be half changed and are not saved"),
                    HasSubstr("the last checkpoint is " + run() + "/checkpoints/step_4"),
                    HasSubstr("--resume --gin TrainerArgs.train_batch_size=4"),
                    Not(HasSubstr("is saved in"))));
  EXPECT_FALSE(module.parameters().front().equal(first)) << "it failed before the update";
  EXPECT_TRUE(module.parameters().back().equal(last)) << "it failed after the update";
  EXPECT_EQ(saved_step(), 4);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(run() + "/checkpoints"), {}), 1);
  expect_resumed_run_is_whole(config);
}

TEST_F(TrainingFaults, OutOfMemoryInTheFirstUpdateLeavesNoCheckpoint) {
  const config::Config config = training_config();
  auto inner = make_model(config);
  models::Model& module = *inner;
  Disturbed model(std::move(inner), 1,
                  [&](TaskModel::Loss& loss) { spoil_last_gradient(module, loss); });
  EXPECT_THAT(error_of(config, model), AllOf(HasSubstr("out of memory in step 1 "),
                                             HasSubstr("there is no checkpoint yet")));
  EXPECT_FALSE(newest_checkpoint(run()));
}

TEST_F(TrainingFaults, OutOfMemoryInTheGradientNormSavesTheStateBeforeTheStep) {
  config::Config config = training_config();
  config.optimizer.max_grad_norm = 1;
  const auto inner = make_model(config);
  Disturbed model(inner, 7, [&](TaskModel::Loss& loss) { spoil_table_gradient(*inner, loss); });
  EXPECT_THAT(error_of(config, model), AllOf(HasSubstr("out of memory in step 7 (batch of "),
                                             HasSubstr("the state after step 6 is saved in")));
  EXPECT_EQ(saved_step(), 6);
  expect_resumed_run_is_whole(config);
}

// Reports damaged files when the n-th batch is made.
class DamagedDataset : public data::MemoryDataset {
 public:
  DamagedDataset(const data::MemoryDataset& whole, int64_t batch)
      : data::MemoryDataset(whole), batch_(batch) {}
  void check_unchanged(const data::Sample* /*samples*/, int64_t /*count*/) const override {
    if (++calls_ == batch_) throw DataError("sequences/000.arrow is damaged");
  }

 private:
  int64_t batch_;
  mutable int64_t calls_ = 0;
};

TEST_F(TrainingFaults, DamagedDataSaveTheStateBeforeTheStep) {
  config::Config config = training_config();
  config.trainer.eval_interval = 0;
  config.trainer.pipeline_type = config::Pipeline::none;
  const DamagedDataset damaged(dataset_, 6);
  const auto model = make_model(config);
  EXPECT_THAT(error_of<DataError>(config, *model, damaged),
              AllOf(HasSubstr("sequences/000.arrow is damaged"), HasSubstr("found in step 6"),
                    HasSubstr("the state after step 5 is saved in " + run())));
  EXPECT_EQ(saved_step(), 5);
  expect_resumed_run_is_whole(config);
}

TEST_F(TrainingFaults, AFullDiskStopsUnlessTrainingIsToGoOn) {
  config::Config config = training_config();
  std::unique_ptr<FileLimit> full;
  const auto fill = [&](TaskModel::Loss&) { full = std::make_unique<FileLimit>(1000); };
  Disturbed stopping(make_model(config), 7, fill);
  EXPECT_THAT(error_of<IoError>(config, stopping),
              AllOf(HasSubstr("the checkpoint of step 8 was not saved: cannot write"),
                    HasSubstr("run/checkpoints/step_8.tmp-"), HasSubstr("B are free"),
                    HasSubstr("the last checkpoint is " + run() + "/checkpoints/step_4"),
                    HasSubstr("on_checkpoint_error = 'continue'")));
  full.reset();
  EXPECT_EQ(saved_step(), 4);
  expect_resumed_run_is_whole(config);

  std::filesystem::remove_all(run());
  std::filesystem::remove_all(directory_.path() / "whole");
  config.trainer.on_checkpoint_error = config::OnCheckpointError::keep_training;
  config.trainer.max_train_iters = 14;
  auto inner = std::make_unique<Disturbed>(make_model(config), 7, fill);
  Disturbed going_on(std::move(inner), 11, [&](TaskModel::Loss&) { full.reset(); });
  EXPECT_EQ(train(config, "run", going_on).step, 14);  // without the checkpoint of step 8
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(run() + "/checkpoints"), {}), 3);
  EXPECT_EQ(saved_step(), 14);
  const auto undisturbed = make_model(config);
  train(config, "whole", *undisturbed);
  EXPECT_EQ(metrics("run"), metrics("whole"));
  expect_same_weights(going_on, *undisturbed);
}

TEST_F(TrainingFaults, LinesOfMetricsWaitForRoomAndAreWrittenInOrder) {
  RunDirectory run =
      RunDirectory::create(directory_.path() / "run", {.task = config::Task::retrieval}, "", false);
  config::TrainerArgs args;
  args.on_checkpoint_error = config::OnCheckpointError::keep_training;
  RunWriter writer(run, args);
  const auto add = [&](int64_t step) { writer.append_metrics({{"step", step}}); };
  add(1);
  const std::string before = read_file(run.metrics_file());
  {
    const FileLimit full(before.size() + 4);  // less than a line
    add(2);
    add(3);
    EXPECT_EQ(read_file(run.metrics_file()), before) << "half a line";
    EXPECT_THROW(writer.finish(), IoError);
  }
  add(4);
  EXPECT_EQ(read_file(run.metrics_file()),
            "{\"step\":1}\n{\"step\":2}\n{\"step\":3}\n{\"step\":4}\n");
  args.on_checkpoint_error = config::OnCheckpointError::stop;
  const FileLimit full(before.size());
  EXPECT_THROW(writer.append_metrics({{"step", 5}}), IoError);
}

TEST(OutOfMemory, IsToldFromOtherErrors) {
  EXPECT_TRUE(is_out_of_memory(std::bad_alloc()));
  EXPECT_TRUE(is_out_of_memory(Error("CUDA error: out of memory")));
  EXPECT_TRUE(is_out_of_memory(Error("cublasCreate failed: CUBLAS_STATUS_ALLOC_FAILED")));
  EXPECT_FALSE(is_out_of_memory(Error("CUDA error: an illegal memory access was encountered")));
  EXPECT_FALSE(is_out_of_memory(DataError("x is damaged")));
}

}  // namespace
}  // namespace seqfuse::training::training_faults_test
