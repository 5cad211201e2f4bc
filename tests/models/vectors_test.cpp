// Vectors that are not finite, and users without events.
#include "serving/vectors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/file.h"
#include "tests/models/predictor_checks.h"
#include "tests/temporary_directory.h"
#include "tests/unit/memory_dataset.h"

namespace seqfuse::vectors_test {
namespace {

using models::hstu::Task;
using testing::HasSubstr;

// Three users, the second without events; 20 items as small_manifest() has.
std::shared_ptr<const data::Dataset> some_users() {
  return std::make_shared<const data::MemoryDataset>(data::MemoryDataset(
      {{.items = {1, 20}, .actions = {1, 0}, .timestamps = {100, 200}, .context = {1}},
       {.items = {}, .actions = {}, .timestamps = {}, .context = {2}},
       {.items = {3, 4, 5}, .actions = {0, 7, 1}, .timestamps = {5, 6, 900}, .context = {3}}},
      {{"user_id", 5}}));
}

// The value of one parameter's first number is replaced.
serving::TrainedRun run_with(const std::string& parameter, double value) {
  const auto model = serving::random_model(Task::retrieval, "hstu_research");
  {
    const torch::NoGradGuard no_grad;
    model->named_parameters()[parameter].view(-1)[24].fill_(value);
  }
  const auto users = some_users();
  return {.path = "RUN",
          .step = 7,
          .predictor = std::make_shared<const serving::Predictor>(model, at::kCPU),
          .vocabulary = users,
          .typical = data::TypicalEvents::of(*users),
          .dataset = users};
}

template <class Call>
std::string data_error(const Call& call) {
  try {
    call();
  } catch (const DataError& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was refused";
  return "";
}

TEST(Vectors, UsersWithoutEventsAreLeftOut) {
  const TemporaryDirectory directory;
  const auto file = directory.path() / "users.npy";
  const auto summary =
      export_vectors(run_with("tables.item", 0.5), serving::VectorsOf::users, file, false);
  EXPECT_EQ(summary.count, 2);
  EXPECT_EQ(summary.without_events, 1);
  const auto about = nlohmann::json::parse(read_file(file.string() + ".json"));
  EXPECT_EQ(about["ids"].get<std::vector<std::string>>(), (std::vector<std::string>{"0", "2"}));
}

TEST(Vectors, ThoseThatAreNotFiniteAreRefusedAndTheOldFileStays) {
  const TemporaryDirectory directory;
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  for (const std::string name : {"x.npy", "x.parquet"}) {
    const auto file = directory.path() / name;
    write_file_atomically(file, "as it was");
    // Rows are of width 8: number 24 is of item 3.
    const serving::TrainedRun items = run_with("tables.item", kNan);
    EXPECT_THAT(
        data_error([&] { export_vectors(items, serving::VectorsOf::items, file, false); }),
        HasSubstr("the vector of item '3' has values that are not finite: the weights of RUN, "
                  "step 7, are damaged"));
    EXPECT_THAT(data_error([&] { serving::similar_items(items, "3", 4); }),
                HasSubstr("the vector of item '3' has values that are not finite"));
    // User 2 alone has item 3.
    EXPECT_THAT(data_error([&] { export_vectors(items, serving::VectorsOf::users, file, false); }),
                HasSubstr("the vector of user '2' has values"));
    EXPECT_EQ(read_file(file), "as it was");
  }
  const std::vector<serving::RankedItem> others =
      serving::similar_items(run_with("tables.item", kNan), "4", 30);
  EXPECT_EQ(others.size(), 18U);  // of 20: neither itself nor item 3
}

}  // namespace
}  // namespace seqfuse::vectors_test
