// A predictor: from several threads, and against the model itself.
#include "serving/predictor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/models/predictor_checks.h"
#include "tests/unit/memory_dataset.h"

namespace seqfuse::serving::predictor_test {
namespace {

using models::hstu::Task;
using testing::HasSubstr;

TEST(Predictor, ThreadsAtOnceGetWhatOneGets) {
  expect_threads_agree(Task::retrieval, "hstu", at::kCPU);
  expect_threads_agree(Task::retrieval, "hstu_research", at::kCPU);
  expect_threads_agree(Task::ranking, "hstu", at::kCPU);
}

TEST(Predictor, IsInEvaluationModeWithoutGradients) {
  const auto model = random_model(Task::retrieval, "hstu");
  model->train();
  const Predictor predictor(model, at::kCPU);
  EXPECT_FALSE(model->is_training());
  EXPECT_FALSE(predictor.queries(request_batch(1, 1)).requires_grad());
  EXPECT_FALSE(predictor.catalogue().rows().requires_grad());
  EXPECT_EQ(predictor.device(), at::kCPU);
}

TEST(Predictor, RanksTheTopItemsInTheirOrder) {
  const auto predictor = random_predictor(Task::retrieval, "hstu_research", at::kCPU);
  const data::Batch batch = request_batch(3, 1);
  const ItemLists seen = some_seen(batch.batch_size());
  const TopItems top = predictor->top_items(batch, 20, seen);
  const at::Tensor queries = predictor->queries(batch);
  for (int64_t b = 0; b < top.size(); ++b) {
    EXPECT_EQ(top[b].size(), b < 10 ? 18U : 19U);  // 20 items, minus two seen ones
    for (size_t place = 0; place < top[b].size(); ++place) {
      const int64_t rank = predictor->catalogue()
                               .ranks(queries.slice(0, b, b + 1),
                                      std::vector<int64_t>{top[b][place].item}, {seen[b]})
                               .item<int64_t>();
      EXPECT_EQ(rank, static_cast<int64_t>(place) + 1);
    }
  }
}

TEST(Predictor, EvaluatesAsTheModelDoes) {
  const auto dataset = data::MemoryDataset::of_lengths({9, 12, 7, 15, 20});
  std::vector<data::Sample> samples;
  for (int64_t user = 0; user < 5; ++user) {
    const int64_t end = std::ssize(dataset.user(user).items);
    samples.push_back(
        {.user = user, .begin = 0, .end = std::min<int64_t>(end, 12), .num_candidates = 1});
  }
  for (const Task task : {Task::retrieval, Task::ranking}) {
    config::Config config = models::hstu::small_config("hstu");
    config.ranking.num_tasks = 1;
    config.ranking.prediction_head_arch = {6, 2};
    const auto spec = models::hstu::ModelSpec::make(task, config, dataset.manifest());
    const auto model = models::hstu::make_task_model(spec, 1);
    models::hstu::randomize(*model);
    const training::EvaluationOptions options{.batch_size = 2};
    const training::Metrics expected = training::evaluate(*model, dataset, samples, options);
    const Predictor predictor(model, at::kCPU);
    const training::Metrics metrics = predictor.evaluate(dataset, samples, options);
    ASSERT_EQ(metrics.size(), expected.size());
    for (size_t i = 0; i < metrics.size(); ++i) {
      EXPECT_EQ(metrics[i].first, expected[i].first);
      if (std::isnan(expected[i].second)) continue;  // a metric undefined for these labels
      EXPECT_EQ(metrics[i].second, expected[i].second) << metrics[i].first;
    }
  }
}

TEST(Predictor, RefusesWhatItsTaskDoesNotDo) {
  const auto refused = [](auto&& call) -> std::string {
    try {
      call();
    } catch (const UsageError& error) {
      return error.what();
    }
    return "nothing";
  };
  const auto ranking = random_predictor(Task::ranking, "hstu", at::kCPU);
  const auto retrieval = random_predictor(Task::retrieval, "hstu", at::kCPU);
  EXPECT_THAT(refused([&] { ranking->queries(request_batch(1, 1)); }), HasSubstr("ranking run"));
  EXPECT_THAT(refused([&] { ranking->catalogue(); }), HasSubstr("ranking run"));
  EXPECT_THAT(refused([&] { ranking->top_items(request_batch(1, 1), 1, {}); }),
              HasSubstr("ranking run"));
  EXPECT_THAT(refused([&] { retrieval->candidate_scores(request_batch(1, 1)); }),
              HasSubstr("retrieval run"));
  EXPECT_THAT(refused([&] { retrieval->score_names({}); }), HasSubstr("retrieval run"));
}

TEST(Predictor, NamesTheScoresOfCandidates) {
  const auto predictor = random_predictor(Task::ranking, "hstu", at::kCPU);
  EXPECT_THAT(predictor->score_names({"click", "like"}),
              testing::ElementsAre("click", "like", "task 2"));
  const at::Tensor scores = predictor->candidate_scores(request_batch(1, 2));
  EXPECT_EQ(scores.size(0), 18);
  EXPECT_EQ(scores.size(1), 3);
}

}  // namespace
}  // namespace seqfuse::serving::predictor_test
