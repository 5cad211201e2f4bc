// Predictors of small random models, and checks that must pass on any device.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "serving/predictor.h"
#include "tests/models/model_fixtures.h"

namespace seqfuse::serving {

inline std::shared_ptr<models::hstu::TaskModel> random_model(models::hstu::Task task,
                                                             const std::string& architecture) {
  using models::hstu::ModelSpec;
  const ModelSpec spec = ModelSpec::make(task, models::hstu::small_config(architecture),
                                         models::hstu::small_manifest());
  auto model = models::hstu::make_task_model(spec, 1);
  models::hstu::randomize(*model);
  return model;
}

inline std::shared_ptr<const Predictor> random_predictor(models::hstu::Task task,
                                                         const std::string& architecture,
                                                         at::Device device) {
  return std::make_shared<const Predictor>(random_model(task, architecture), device);
}

// Windows of 9 lengths, different for each seed.
inline data::Batch request_batch(uint64_t seed, int64_t candidates) {
  return models::hstu::random_batch({5, 12, 1 + candidates, 7, 9, 12, 3 + candidates, 8, 4},
                                    candidates, seed);
}

inline ItemLists some_seen(int64_t batch_size) {
  ItemLists seen;
  for (int64_t b = 0; b < batch_size; ++b) seen.push_back({1 + b, 11 + b});
  return seen;
}

// A predictor's results for the batches of several seeds.
struct Answers {
  std::vector<std::vector<ScoredItem>> top;
  std::vector<at::Tensor> queries, ranks, scores;

  void ask(const Predictor& predictor, uint64_t seed) {
    if (!predictor.is_retrieval()) {
      scores.push_back(predictor.candidate_scores(request_batch(seed, 2)));
      return;
    }
    const data::Batch batch = request_batch(seed, 1);
    const ItemLists seen = some_seen(batch.batch_size());
    queries.push_back(predictor.queries(batch).cpu());
    const std::vector<int64_t> targets(batch.batch_size(), 20);
    ranks.push_back(predictor.catalogue().ranks(predictor.queries(batch), targets, seen).cpu());
    const TopItems best = predictor.top_items(batch, 6, seen);
    for (int64_t b = 0; b < best.size(); ++b) top.emplace_back(best[b].begin(), best[b].end());
  }

  void expect_equal(const Answers& other) const {
    EXPECT_EQ(top, other.top);
    const auto equal = [](const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
      ASSERT_EQ(a.size(), b.size());
      for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(at::equal(a[i], b[i])) << i;
    };
    equal(queries, other.queries);
    equal(ranks, other.ranks);
    equal(scores, other.scores);
  }
};

// Four concurrent threads, each asking for the same batches in another order, get the same bits as
// a single thread.
inline void expect_threads_agree(models::hstu::Task task, const std::string& architecture,
                                 at::Device device) {
  constexpr int kThreads = 4, kBatches = 6;
  const auto predictor = random_predictor(task, architecture, device);
  std::vector<Answers> alone(kBatches);
  for (int seed = 0; seed < kBatches; ++seed) alone[seed].ask(*predictor, seed);
  std::vector<std::vector<Answers>> together(kThreads, std::vector<Answers>(kBatches));
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kBatches; ++i) {
        const int seed = (i + t) % kBatches;
        together[t][seed].ask(*predictor, seed);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int t = 0; t < kThreads; ++t) {
    for (int seed = 0; seed < kBatches; ++seed) {
      SCOPED_TRACE(testing::Message() << "thread " << t << ", batch " << seed);
      together[t][seed].expect_equal(alone[seed]);
    }
  }
}

}  // namespace seqfuse::serving
