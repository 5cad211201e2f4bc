// Exchanges between real processes.
#include "distributed/process_group.h"

#include <gmock/gmock.h>

#include <chrono>
#include <numeric>

#include "base/error.h"
#include "distributed/backends.h"
#include "distributed/gradient_buckets.h"
#include "tests/distributed/processes.h"

namespace seqfuse::distributed::process_group_test {
namespace {

TEST(ProcessGroupDeathTest, OneProcessExchangesNothing) {
  ProcessGroup group;
  const at::Tensor tensor = at::ones({3});
  group.all_reduce(tensor, "test")();
  EXPECT_TRUE(group.gather(tensor, "test").equal(tensor));
  EXPECT_EQ(group.broadcast("text", "test"), "text");
  std::vector<double> values = {1, 2};
  group.sum(values, "test");
  EXPECT_THAT(values, testing::ElementsAre(1, 2));
  group.leave();
  EXPECT_TRUE(group.is_first());
  EXPECT_FALSE(group.several());
}

TEST(ProcessGroupDeathTest, SumsBroadcastsAndGathers) {
  in_processes(3, [](ProcessGroup& group) {
    const int rank = group.rank();
    const at::Tensor a = torch::full({1000}, rank + 1.0F),
                     b = torch::full({7}, 10.0 * rank, torch::kDouble);
    const auto finish_a = group.all_reduce(a, "a");
    const auto finish_b = group.all_reduce(b, "b");
    finish_b();
    finish_a();
    EXPECT_TRUE(a.eq(6).all().item<bool>()) << a;
    EXPECT_TRUE(b.eq(30).all().item<bool>()) << b;

    std::vector<double> values = {1.0 * rank, 2};
    group.sum(values, "values");
    EXPECT_THAT(values, testing::ElementsAre(3, 6));

    const at::Tensor weights = torch::full({2, 2}, rank);
    group.broadcast(std::vector{weights}, "weights");
    EXPECT_TRUE(weights.eq(0).all().item<bool>()) << weights;
    EXPECT_EQ(group.broadcast(rank == 0 ? "state" : "", "state"), "state");
    EXPECT_EQ(group.broadcast(rank == 0 ? "" : "x", "empty"), "");

    // 0, 1 and 2 rows.
    const at::Tensor rows = torch::full({rank, 2}, rank, torch::kLong);
    EXPECT_TRUE(group.gather(rows, "rows").equal(torch::tensor({{1, 1}, {2, 2}, {2, 2}})));
    EXPECT_EQ(group.gather(torch::zeros({0, 3}), "nothing").sizes(), (at::IntArrayRef{0, 3}));
    group.barrier("barrier");
  });
}

TEST(ProcessGroupDeathTest, GlooWaitsForAsLongAsOthersTake) {  // 30 minutes by default
  const int port = free_port();
  ForkedProcesses alone(1, [&](int rank) {
    const Launch launch = launch_of(rank, 1, port);
    const auto gloo = make_gloo(open_store(launch, /*serve=*/true), launch);
    EXPECT_GT(gloo->getBackendOptions()->timeout, std::chrono::hours(24 * 30));
  });
  for (const Ended& ended : alone.wait()) EXPECT_TRUE(ended.exited_with(0)) << ended.err;
}

TEST(ProcessGroupDeathTest, AllToAllSendsRowsToTheirProcess) {
  in_processes(3, [](ProcessGroup& group) {
    // Rank r sends r + s rows of value 10 r + s to rank s.
    const int rank = group.rank();
    std::vector<int64_t> send, receive;
    std::vector<at::Tensor> sent, expected;
    for (int other = 0; other < 3; ++other) {
      send.push_back(rank + other);
      receive.push_back(rank + other);
      sent.push_back(torch::full({rank + other, 2}, 10.0F * rank + other));
      expected.push_back(torch::full({rank + other, 2}, 10.0F * other + rank));
    }
    const at::Tensor received = group.all_to_all(torch::cat(sent), send, receive, "rows");
    EXPECT_TRUE(received.equal(torch::cat(expected))) << received;
  });
}

// loss = sum over parameters of (value * parameter).sum(): the gradient is value everywhere.
at::Tensor loss_of(const std::vector<at::Tensor>& parameters, const std::vector<float>& values) {
  at::Tensor loss = torch::zeros({});
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (values[i] != 0) loss = loss + parameters[i].sum() * values[i];
  }
  return loss;
}

TEST(GradientBucketsDeathTest, GradientsAreSumsOverTheProcessesAndSentDuringBackward) {
  in_processes(2, [](ProcessGroup& group) {
    const bool first = group.is_first();
    std::vector<at::Tensor> parameters;
    for (int i = 0; i < 5; ++i) parameters.push_back(torch::zeros({10, i + 1}).requires_grad_());
    GradientBuckets buckets(group, parameters, /*bucket_bytes=*/200);
    EXPECT_EQ(buckets.buckets(), 4);
    for (int step = 0; step < 3; ++step) {
      for (at::Tensor& parameter : parameters) parameter.mutable_grad().reset();
      // Two batches per step; only the second sends. Parameter 0 has a gradient in one process
      // only, parameter 1 in none.
      loss_of(parameters, {0, 0, 1, 1, 1}).backward();
      buckets.start();
      loss_of(parameters,
              first ? std::vector<float>{7, 0, 1, 2, 3} : std::vector<float>{0, 0, 10, 20, 30})
          .backward();
      std::vector<double> numbers = {1, 10.0 * group.rank()};
      buckets.finish(numbers);
      EXPECT_THAT(numbers, testing::ElementsAre(2, 10));
      const std::vector<float> expected = {7, 0, 13, 24, 35};
      for (size_t i = 0; i < parameters.size(); ++i) {
        const at::Tensor gradient = parameters[i].grad();
        ASSERT_EQ(gradient.defined(), i != 1);
        if (gradient.defined()) {
          EXPECT_TRUE(gradient.eq(expected[i]).all().item<bool>()) << i;
        }
      }
      EXPECT_EQ(buckets.sent_early(), 2);  // up to the first bucket that lacks a gradient
    }
  });
}

TEST(GradientBucketsDeathTest, SparseGradientsAreGathered) {
  in_processes(2, [](ProcessGroup& group) {
    at::Tensor table = torch::zeros({6, 2}).requires_grad_();
    if (group.is_first()) {
      table.mutable_grad() =
          torch::sparse_coo_tensor(torch::tensor({{1, 4, 1}}), torch::ones({3, 2}), {6, 2});
    } else {
      table.mutable_grad() =
          torch::sparse_coo_tensor(torch::tensor({{4}}), torch::full({1, 2}, 5.0F), {6, 2});
    }
    sum_table_gradient(group, table);
    const at::Tensor sum = table.grad();
    EXPECT_TRUE(sum._indices().equal(torch::tensor({{1, 4}}))) << sum;
    EXPECT_TRUE(sum._values().equal(torch::tensor({{2.0F, 2.0F}, {6.0F, 6.0F}}))) << sum;
    table.mutable_grad().reset();
    sum_table_gradient(group, table);
    EXPECT_FALSE(table.grad().defined());
    // Sparse in one process, dense in the other.
    table.mutable_grad() = torch::ones({6, 2});
    if (group.is_first()) table.mutable_grad() = table.grad().to_sparse(1);
    sum_table_gradient(group, table);
    EXPECT_TRUE(table.grad().eq(2).all().item<bool>()) << table.grad();
  });
}

TEST(Launch, ComesFromTorchrunsEnvironment) {
  const auto set = [](const std::vector<std::pair<std::string, std::string>>& variables) {
    for (const char* name :
         {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
          "TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_RESTART_COUNT"}) {
      unsetenv(name);
    }
    for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
  };
  const auto error = [] {
    try {
      Launch::from_environment();
    } catch (const UsageError& e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  set({});
  EXPECT_EQ(Launch::from_environment().size, 1);
  set({{"WORLD_SIZE", "4"},
       {"RANK", "3"},
       {"LOCAL_RANK", "1"},
       {"LOCAL_WORLD_SIZE", "2"},
       {"MASTER_ADDR", "host"},
       {"MASTER_PORT", "29500"},
       {"TORCHELASTIC_USE_AGENT_STORE", "True"},
       {"TORCHELASTIC_RESTART_COUNT", "2"}});
  const Launch launch = Launch::from_environment();
  EXPECT_EQ(launch.rank, 3);
  EXPECT_EQ(launch.local_rank, 1);
  EXPECT_EQ(launch.address, "host");
  EXPECT_EQ(launch.port, 29500);
  EXPECT_TRUE(launch.store_is_served);
  EXPECT_EQ(launch.attempt, 2);
  set({{"WORLD_SIZE", "4"}});
  EXPECT_THAT(error(), testing::HasSubstr("RANK is not"));
  set({{"WORLD_SIZE", "4"}, {"RANK", "4"}});
  EXPECT_THAT(error(), testing::HasSubstr("RANK is '4'; expected a number from 0 to 3"));
  set({{"WORLD_SIZE", "two"}});
  EXPECT_THAT(error(), testing::HasSubstr("torchrun"));
  set({});
}

}  // namespace
}  // namespace seqfuse::distributed::process_group_test
