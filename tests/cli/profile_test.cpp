// TrainerArgs.profile from the command line.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/file.h"
#include "tests/cli/distributed_run.h"
#include "tests/cli/trained_runs.h"

namespace seqfuse::profile_test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

class Profile : public testing::Test {
 protected:
  // The retrieval run of TrainedRuns again, with steps [start, end) recorded: 6 steps, an
  // evaluation and a checkpoint after the third.
  Outcome train(int start, int end) const {
    const TrainedRuns& runs = TrainedRuns::get();
    return run_seqfuse(
        fmt::format("train retrieval --gin-config-file {}/operative_config.gin --data {} --output "
                    "{} --device cpu "
                    "--gin TrainerArgs.profile=True --gin TrainerArgs.profile_step_start={} "
                    "--gin TrainerArgs.profile_step_end={}",
                    runs.retrieval(), runs.data(), run(), start, end));
  }
  std::string run() const { return (directory_.path() / "run").string(); }
  json read(const std::string& file) const { return json::parse(read_file(run() + "/" + file)); }

  TemporaryDirectory directory_;
};

TEST_F(Profile, RecordsTheStepsAndChangesNoWeight) {
  const Outcome result = train(1, 5);
  ASSERT_EQ(result.code, 0) << result.text();
  EXPECT_THAT(result.text(), HasSubstr("steps 2 to 5 on CPU"));
  EXPECT_THAT(result.text(), testing::Not(HasSubstr("ERROR")));
  const json profile = read("profile.json");
  EXPECT_EQ(profile["first_step"], 2);
  EXPECT_EQ(profile["last_step"], 5);
  EXPECT_EQ(profile["steps"], 4);
  EXPECT_GT(profile["tokens_a_step"], 0);
  double share = 0, attentions = 0;
  for (const json& row : profile["operators"]) {
    share += row["share"].get<double>();
    if (row["name"] == "seqfuse::hstu_attention") attentions = row["count_a_step"];
    EXPECT_GT(row["seconds_a_step"], 0) << row;
  }
  EXPECT_GT(share, 0.1);
  EXPECT_LE(share, 1.0);
  // One layer; the dispatcher sees it with and without gradients. The evaluation is not recorded.
  EXPECT_EQ(attentions, 2);
  EXPECT_FALSE(read("trace.json")["traceEvents"].empty());
  for (const auto& entry : std::filesystem::directory_iterator(run())) {
    EXPECT_THAT(entry.path().filename().string(), testing::Not(HasSubstr("tmp")));
  }

  const std::string plain = TrainedRuns::get().retrieval();
  EXPECT_EQ(metrics_of(run()), metrics_of(plain));
  for (const char* file :
       {"dense.safetensors", "tables/item.safetensors", "optimizer.safetensors"}) {
    const std::string name = fmt::format("/checkpoints/step_6/{}", file);
    EXPECT_EQ(read_file(run() + name), read_file(plain + name)) << file;
  }
}

TEST_F(Profile, TrainingThatEndsEarlierStillWritesIt) {
  const Outcome result = train(4, 200);
  ASSERT_EQ(result.code, 0) << result.text();
  EXPECT_EQ(read("profile.json")["steps"], 2);
}

TEST_F(Profile, StepsThatAreNotTrainedAreAWarning) {
  const Outcome result = train(6, 200);
  ASSERT_EQ(result.code, 0) << result.text();
  EXPECT_THAT(result.text(), HasSubstr("profile_step_start = 6"));
  EXPECT_FALSE(std::filesystem::exists(run() + "/profile.json"));
}

}  // namespace
}  // namespace seqfuse::profile_test
