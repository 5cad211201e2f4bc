// The training loop on a small dataset: learning, resuming, stopping, failing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>
#include <csignal>
#include <limits>
#include <memory>

#include "base/error.h"
#include "tests/models/format1_checkpoint.h"
#include "tests/models/training_fixture.h"

namespace seqfuse::training::training_loop_test {
namespace {

TEST_F(TrainingLoop, LearnsTheRing) {
  config::Config config = training_config();
  config.trainer.max_train_iters = 150;
  config.trainer.eval_interval = 0;
  config.retrieval.filter_seen = false;
  const auto model = make_model(config);
  const TrainResult result = train(config, "run", *model);
  ASSERT_EQ(result.metrics[0].first, "HR@1");
  // Chance is 1 in 12. The longest users are evaluated at a position that training never reaches.
  EXPECT_GT(result.metrics[0].second, 0.75);
  const auto lines = metrics("run");
  EXPECT_GT(lines.front()["loss"].get<double>(), 1);
  EXPECT_LT(lines[lines.size() - 2]["loss"].get<double>(), 0.3);
}

TEST_F(TrainingLoop, RankingOverfits) {
  config::Config config = training_config("hstu");
  config.network.hidden_dropout = 0;
  config.dataset.split = config::SplitKind::user;
  config.ranking.num_tasks = 1;
  config.ranking.prediction_head_arch = {16, 1};
  config.ranking.label_threshold = 1;
  config.trainer.max_train_iters = 200;
  config.trainer.eval_interval = 0;
  const auto model = make_model(config, Task::ranking);
  train(config, "run", *model);
  const auto lines = metrics("run");
  EXPECT_GT(lines.front()["loss"].get<double>(), 0.5);
  double last_loss = 1;
  for (const json& line : lines) last_loss = line.value("loss", last_loss);
  EXPECT_LT(last_loss, 0.2);
}

TEST_F(TrainingLoop, ResumingRepeatsTheLossesBitForBit) {
  for (const int64_t stop :
       {4, 5, 7}) {  // at an evaluation; inside an epoch; inside a log interval
    config::Config config = training_config();
    config.optimizer.max_grad_norm = 0.5;
    config.optimizer.average_decay = stop == 5 ? 0.7 : 0;
    config.dataset.truncate = stop == 7 ? config::Truncate::random : config::Truncate::newest;
    config.trainer.gradient_accumulation_steps = 2;
    const std::string whole = "whole" + std::to_string(stop),
                      parted = "parted" + std::to_string(stop);
    const auto undisturbed = make_model(config);
    train(config, whole, *undisturbed);

    const auto first = std::make_unique<Disturbed>(make_model(config), 2 * stop,
                                                   [](auto&) { std::raise(SIGTERM); });
    own_signal_ = SIGTERM;
    const TrainResult stopped = train(config, parted, *first);
    EXPECT_EQ(stopped.signal, SIGTERM);
    EXPECT_EQ(stopped.step, stop);
    config.trainer.num_loader_threads = 2;
    const auto second = make_model(config);
    const TrainResult resumed = train(config, parted, *second);
    EXPECT_EQ(resumed.step, 10);
    EXPECT_EQ(metrics(parted), metrics(whole));
    expect_same_weights(*second, *undisturbed);
  }
}

TEST_F(TrainingLoop, ARunSavedInFormatOneGoesOnBitForBit) {
  for (const bool adagrad : {false, true}) {
    config::Config config = training_config("hstu");
    config.optimizer.average_decay = 0.7;
    if (adagrad) {
      config.optimizer.embedding_optimizer_str = config::OptimizerKind::row_wise_adagrad;
    }
    const std::string whole = fmt::format("whole_{}", adagrad),
                      old = fmt::format("old_{}", adagrad);
    const auto undisturbed = make_model(config), stopped = make_model(config),
               resumed = make_model(config);
    train(config, whole, *undisturbed);
    config.trainer.max_train_iters = 5;
    train(config, old, *stopped);
    const auto checkpoint = *newest_checkpoint(directory_.path() / old);
    const Checkpoint content = load_checkpoint(checkpoint);
    std::filesystem::remove_all(checkpoint);
    save_as_format1(checkpoint, content);
    config.trainer.max_train_iters = 10;
    train(config, old, *resumed);
    // A run of another length ends with its own evaluation.
    EXPECT_EQ(metrics(old).back(), metrics(whole).back());
    expect_same_weights(*resumed, *undisturbed);
  }
}

// Versions before format 2 saved 1 when losses were not scaled.
TEST_F(TrainingLoop, ALossScaleCountsInFloat16Alone) {
  for (const auto dtype : {config::ComputeType::bfloat16, config::ComputeType::float16}) {
    config::Config config = training_config();
    config.network.dtype_str = dtype;
    const auto spec = models::hstu::ModelSpec::make(Task::retrieval, config, dataset_.manifest());
    TrainingState saved;
    saved.loss_scale = 1;
    saved.loss_scale_steps = 17;
    const TrainingState found = state_from_json(state_to_json(saved, spec, 5), spec, 5);
    const bool counts = dtype == config::ComputeType::float16;
    EXPECT_EQ(found.loss_scale, counts ? 1 : TrainingState().loss_scale);
    EXPECT_EQ(found.loss_scale_steps, counts ? 17 : 0);
  }
}

TEST_F(TrainingLoop, TwoRunsAreEqualAndSeedsDiffer) {
  config::Config config = training_config();
  const auto first = make_model(config), second = make_model(config), third = make_model(config);
  train(config, "a", *first);
  train(config, "b", *second);
  EXPECT_EQ(metrics("a"), metrics("b"));
  expect_same_weights(*first, *second);
  config.trainer.seed = 99;
  train(config, "c", *third);
  EXPECT_NE(metrics("a"), metrics("c"));
}

TEST_F(TrainingLoop, AccumulatedBatchesEqualOneLargeBatch) {
  config::Config config = training_config();
  config.network.hidden_dropout = 0;
  config.retrieval.negatives = config::Negatives::full;
  config.dataset.shuffle = false;
  config.trainer.train_batch_size = 16;
  config.trainer.drop_last = true;
  config.trainer.max_train_iters = 1;
  const auto large = make_model(config), small = make_model(config);
  train(config, "large", *large);
  config.trainer.train_batch_size = 4;
  config.trainer.gradient_accumulation_steps = 4;
  train(config, "small", *small);
  EXPECT_NEAR(metrics("large")[0]["loss"].get<double>(), metrics("small")[0]["loss"].get<double>(),
              1e-5);
  // One step of SGD reveals the gradient.
  config.optimizer.optimizer_str = config::OptimizerKind::sgd;
  config.optimizer.learning_rate = 0.1;
  const auto parts = make_model(config), whole = make_model(config);
  train(config, "parts", *parts);
  config.trainer.train_batch_size = 16;
  config.trainer.gradient_accumulation_steps = 1;
  train(config, "whole", *whole);
  const auto left = parts->named_parameters();
  for (const auto& parameter : whole->named_parameters()) {
    EXPECT_LT((parameter.value() - left[parameter.key()]).abs().max().item<float>(), 1e-5)
        << parameter.key();
  }
}

TEST_F(TrainingLoop, NotANumberStopsNamesTheStepAndKeepsTheLastCheckpoint) {
  const config::Config config = training_config();
  for (const double value : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    const std::string name = std::isnan(value) ? "nan" : "inf";
    const auto model = std::make_unique<Disturbed>(
        make_model(config), 6, [&](TaskModel::Loss& loss) { loss.sum = loss.sum * value; });
    try {
      train(config, name, *model);
      FAIL() << "went on";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("in step 6"));
      EXPECT_THAT(error.what(), testing::HasSubstr("step_4"));
    }
    EXPECT_EQ(load_checkpoint(*newest_checkpoint(directory_.path() / name)).step, 4);
  }
}

TEST_F(TrainingLoop, WeightsThatAreNotFiniteAreNotSaved) {
  const config::Config config = training_config();
  auto inner = make_model(config);
  // A position beyond the longest window: no step reads it.
  const torch::Tensor unread = inner->named_parameters()["encoder.position"].detach()[20];
  Disturbed model(std::move(inner), 7, [&](TaskModel::Loss&) { unread.fill_(std::nan("")); });
  EXPECT_THROW(train(config, "run", model), Error);
  EXPECT_EQ(load_checkpoint(*newest_checkpoint(directory_.path() / "run")).step, 4);
}

TEST_F(TrainingLoop, StopsEarlyAndKeepsTheBestCheckpoint) {
  config::Config config = training_config();
  config.optimizer.learning_rate = 0;  // nothing improves on the first evaluation
  config.trainer.max_train_iters = 100;
  config.trainer.early_stopping_patience = 3;
  config.trainer.ckpt_keep = 1;
  const auto model = make_model(config);
  const TrainResult result = train(config, "run", *model);
  EXPECT_TRUE(result.stopped_early);
  EXPECT_EQ(result.step, 16);
  EXPECT_EQ(result.best_step, 4);
  EXPECT_TRUE(std::filesystem::exists(directory_.path() / "run/checkpoints/step_4/state.json"));
  config.trainer.early_stopping_metric = "HR@2";
  const auto other = make_model(config);
  EXPECT_THROW(train(config, "other", *other), UsageError);
}

// Returns these values of a metric, in turn, and one value of another metric.
Evaluate scripted(std::vector<double> values, double other = std::nan("")) {
  return [values = std::move(values), other, next = size_t{0}](auto&&...) mutable {
    return Metrics{{"AUC", values.at(next++)}, {"other", other}};
  };
}

TEST_F(TrainingLoop, AnUndefinedMetricIsNoLackOfImprovement) {
  const double undefined = std::nan("");
  config::Config config = training_config();
  config.trainer.eval_interval = 1;
  config.trainer.early_stopping_patience = 2;
  const TrainResult result = train(config, "run", *make_model(config),
                                   scripted({undefined, undefined, undefined, 0.6, undefined,
                                             undefined, undefined, 0.5, undefined, 0.7}));
  EXPECT_FALSE(result.stopped_early);
  EXPECT_EQ(result.step, 10);
  EXPECT_EQ(result.best_step, 10);
  config.trainer.max_train_iters = 12;
  EXPECT_EQ(train(config, "run", *make_model(config), scripted({0.65, 0.8})).best_step, 12)
      << "resumed";
  config.trainer.max_train_iters = 10;

  const TrainResult stopped = train(config, "worse", *make_model(config),
                                    scripted({undefined, 0.6, 0.5, undefined, 0.4, 0.9}));
  EXPECT_TRUE(stopped.stopped_early);
  EXPECT_EQ(stopped.step, 5);
  EXPECT_EQ(stopped.best_step, 2);

  const auto never = scripted(std::vector<double>(10, undefined));
  EXPECT_EQ(train(config, "never", *make_model(config), never).best_step, -1);
}

TEST_F(TrainingLoop, AnotherMetricToStopByBeginsAnew) {
  config::Config config = training_config();
  config.trainer.eval_interval = 1;
  config.trainer.early_stopping_patience = 2;
  EXPECT_EQ(train(config, "run", *make_model(config), scripted({0.9, 0.5, 0.4})).step, 3);
  config.trainer.early_stopping_metric = "other";
  const TrainResult result =
      train(config, "run", *make_model(config), scripted(std::vector<double>(3, 0.5), 0.3));
  EXPECT_EQ(result.step, 6);
  EXPECT_EQ(result.best_step, 4);
}

TEST_F(TrainingLoop, EpochsAreWholeAfterStepsOfAnotherSize) {
  config::Config config = training_config();
  config.trainer.max_train_iters = std::nullopt;
  config.trainer.num_epochs = 1;
  const int64_t batches = train(config, "run", *make_model(config)).step;
  config.trainer.num_epochs = 2;
  config.trainer.gradient_accumulation_steps = 2;
  EXPECT_EQ(train(config, "run", *make_model(config)).step, batches + (batches + 1) / 2);
}

TEST_F(TrainingLoop, CheckpointsOfOtherModelsAreRefused) {
  config::Config config = training_config();
  const auto model = make_model(config);
  train(config, "run", *model);
  config.network.num_layers = 1;
  const auto smaller = make_model(config);
  try {
    train(config, "run", *smaller);
    FAIL() << "accepted";
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("NetworkArgs.num_layers is 2 there and 1"));
  }
  models::hstu::ModelSpec spec = model->spec();
  spec.dataset_hash = "xxh3:1";
  const Checkpoint checkpoint = load_checkpoint(*newest_checkpoint(directory_.path() / "run"));
  EXPECT_THROW(check_same_model(checkpoint.state, spec), DataError);
}

TEST_F(TrainingLoop, WeightsStartARunOfAnotherLossOrDropoutButNotOfAnotherSize) {
  config::Config config = training_config();
  const auto source = make_model(config);
  train(config, "source", *source);
  const Checkpoint checkpoint = load_checkpoint(*newest_checkpoint(directory_.path() / "source"));
  const auto start = [&](TaskModel& model, const config::Config& other) {
    const data::Split split =
        data::make_split(dataset_, split_options(other.dataset, model.spec().task));
    Trainer(model, dataset_, split, other).start_from(checkpoint);
  };
  config.network.hidden_dropout = 0.3;
  config.retrieval.temperature = 0.1;
  config.retrieval.eval_metrics = {"HR@7"};
  const auto tuned = make_model(config);
  log::set_level(log::Level::info);
  testing::internal::CaptureStderr();
  start(*tuned, config);
  const std::string said = testing::internal::GetCapturedStderr();
  log::set_level(log::Level::quiet);
  expect_same_weights(*tuned, *source);
  EXPECT_THAT(said, testing::HasSubstr("NetworkArgs.hidden_dropout: 0.1 there, 0.3 here"));
  EXPECT_THAT(said, testing::HasSubstr("RetrievalArgs.temperature: 0.05 there, 0.1 here"));
  EXPECT_THAT(said, testing::Not(testing::HasSubstr("num_layers")));

  config.network.hidden_size = 16;
  const auto wider = make_model(config);
  EXPECT_THROW(start(*wider, config), DataError);
  models::hstu::ModelSpec spec = source->spec();
  spec.dataset_hash = "xxh3:1";
  EXPECT_THROW(compare_with_weights(checkpoint.state, spec), DataError);
}

}  // namespace
}  // namespace seqfuse::training::training_loop_test
