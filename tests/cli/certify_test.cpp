// seqfuse certify.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/cli/bert_folder.h"
#include "tests/cli/seqfuse_process.h"

namespace seqfuse::certify_cli_test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

// Logits are tanh of the first two numbers of the first token's state.
class Certify : public testing::Test {
 protected:
  void SetUp() override { write({}); }

  void write(const json& changes, float weight = 1) {
    BertFolder bert(7);
    bert.add_classifier(2, weight);
    bert.write(folder_.path(), changes);
  }
  std::string path(const std::string& name) const { return (folder_.path() / name).string(); }
  Outcome certify(const std::string& arguments) const {
    return run_seqfuse("certify " + folder_.path().string() + " --device cpu " + arguments);
  }
  void expect_refusal(const std::string& arguments, int code, const std::string& message) const {
    const Outcome outcome = certify(arguments);
    EXPECT_EQ(outcome.code, code) << outcome.text();
    EXPECT_THAT(outcome.err, HasSubstr(message));
  }
  TemporaryDirectory folder_;
};

TEST_F(Certify, MarginsAndRadiiOfSentences) {
  std::ofstream(path("ids.txt")) << "1,2,3\n4 5\n";
  const Outcome bounds =
      certify("--ids-file " + path("ids.txt") + " --positions 1 --eps 0.001 --json");
  ASSERT_EQ(bounds.code, 0) << bounds.text();
  std::istringstream lines(bounds.out);
  std::string line;
  for (const int64_t tokens : {3, 2}) {
    ASSERT_TRUE(std::getline(lines, line));
    const json found = json::parse(line);
    EXPECT_EQ(found["tokens"].get<int64_t>(), tokens);
    EXPECT_EQ(found["positions"].dump(), "[1]");
    EXPECT_EQ(found["label"].get<int64_t>(), found["predicted"].get<int64_t>());
    // Token 1 does not touch the first one here, since attention is off: the margin stays.
    const double margin =
        std::abs(found["logits"][0].get<double>() - found["logits"][1].get<double>());
    EXPECT_NEAR(found["margins"][0]["lower"].get<double>(), margin, 1e-6);
    EXPECT_TRUE(found["certified"].get<bool>());
  }
  const Outcome search = certify("--ids 1,2,3 --positions 0 --search --norm linf --json");
  ASSERT_EQ(search.code, 0) << search.text();
  const json found = json::parse(search.out);
  const double radius = found["radius"].get<double>();
  EXPECT_GT(radius, 0);
  EXPECT_LE(found["not_certified"].get<double>(), radius * 1.001);
  const auto certified_at = [&](double eps) {
    const Outcome outcome =
        certify("--ids 1,2,3 --positions 0 --norm linf --eps " + std::to_string(eps));
    return outcome.out;
  };
  EXPECT_THAT(certified_at(radius * 0.98), HasSubstr(": certified at"));
  EXPECT_THAT(certified_at(radius * 1.02), HasSubstr(": not certified at"));
  const std::string other = std::to_string(1 - found["label"].get<int64_t>());
  EXPECT_THAT(certify("--ids 1,2,3 --search --label " + other).out,
              HasSubstr("the model predicts"));
}

TEST_F(Certify, NamesWrongArgumentsAndModels) {
  expect_refusal("--ids 1,2", 2, "Exactly 1 option from [--eps,--search] is required");
  expect_refusal("--ids 1,2 --eps 0.1 --search", 2, "Exactly 1 option from [--eps,--search]");
  expect_refusal("--ids 1,2 --eps -0.5", 2, "--eps is -0.5; expected a radius of 0 or more");
  expect_refusal("--ids 1,2 --eps 0.1 --positions 2", 2,
                 "there is no position 2 in the sentence of line 1; its 2 tokens are 0 to 1");
  expect_refusal("--ids 1,2 --eps 0.1 --positions a", 2, "expected numbers such as 1,2, or all");
  expect_refusal("--ids 1,2 --eps 0.1 --label 2", 2, "the model's classes are 0 to 1");
  expect_refusal("--ids 1,9 --eps 0.1", 2, "there is no id 9");
  expect_refusal("--ids 1,2,1,2,1,2,1,2,1,2,1,2,1 --eps 0.1", 2,
                 "it has more than 12 tokens; the model takes no more");
  write({{"hidden_act", "silu"}});
  expect_refusal("--ids 1,2 --eps 0.1", 1, "hidden_act is 'silu'");
  write({{"layer_norm_type", "rms"}});
  expect_refusal("--ids 1,2 --eps 0.1", 1, "layer_norm_type is 'rms'");
  write({}, std::numeric_limits<float>::quiet_NaN());
  expect_refusal("--ids 1,2 --eps 0.1", 1, "has values that are NaN or infinite");
}

}  // namespace
}  // namespace seqfuse::certify_cli_test
