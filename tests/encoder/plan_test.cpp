#include "models/bert/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/file.h"
#include "serving/tuning/scheme_search.h"
#include "tests/encoder/tiny_bert.h"
#include "tests/temporary_directory.h"

namespace seqfuse::plan_test {
namespace {

using models::bert::Plan;
using testing::HasSubstr;

Plan plan_of(const test::TinyBert& tiny) {
  return {.hidden = tiny.hidden(),
          .heads = tiny.heads,
          .inner = tiny.inner,
          .layers = tiny.layers,
          .activation = "gelu",
          .batch = 2,
          .seq = 9,
          .mask = "causal",
          .dtype = "float32",
          .card = "cpu",
          .scheme = serving::default_program(),
          .choices = {{"bias1_residual_norm1", "aten"}},
          .milliseconds = 1.25,
          .default_milliseconds = 1.5,
          .version = "0.1.0",
          .date = "2026-11-30T22:00:00Z"};
}

TEST(BertPlan, IsTheSameAfterWritingAndReading) {
  const TemporaryDirectory folder;
  const Plan plan = plan_of({});
  save_plan(plan, folder.path() / "plan.json");
  EXPECT_EQ(models::bert::load_plan(folder.path() / "plan.json"), plan);
}

TEST(BertPlan, RunsWhatItSays) {
  const test::TinyBert tiny;
  const auto model = tiny.model(at::kFloat);
  const models::bert::PlannedProgram planned(plan_of(tiny), model);
  EXPECT_EQ(planned.program().segments().size(), 8U);
  EXPECT_EQ(planned.why_not_for(std::vector<int64_t>{9, 9}), "");
  EXPECT_EQ(planned.why_not_for(std::vector<int64_t>{9, 8}),
            "the plan is for 2 sequences of 9 tokens, and the batch has 2 of 8 to 9");
  EXPECT_NE(planned.why_not_for(std::vector<int64_t>{}), "");
}

TEST(BertPlan, IsRefusedForAnotherModelCardOrDtype) {
  const test::TinyBert tiny;
  const auto model = tiny.model(at::kFloat);
  const auto refusal = [&](auto&& change) {
    Plan plan = plan_of(tiny);
    change(plan);
    return why_not_for(plan, model);
  };
  EXPECT_EQ(refusal([](Plan&) {}), "");
  EXPECT_THAT(refusal([](Plan& plan) { plan.card = "NVIDIA H200"; }),
              HasSubstr("for the card 'NVIDIA H200', and this is 'cpu'"));
  EXPECT_EQ(refusal([](Plan& plan) { plan.dtype = "float16"; }),
            "the plan is for float16, and the model is float32");
  EXPECT_THAT(refusal([](Plan& plan) { plan.layers = 12; }), HasSubstr("12 layers of 16 wide"));
  EXPECT_THAT(refusal([](Plan& plan) { plan.activation = "relu"; }), HasSubstr("relu"));
  Plan plan = plan_of(tiny);
  plan.card = "another";
  EXPECT_THROW(models::bert::PlannedProgram(plan, model), UsageError);
}

TEST(BertPlan, DamagedFilesAreRefusedByName) {
  const TemporaryDirectory folder;
  const auto file = folder.path() / "plan.json";
  const auto refusal = [&](const std::string& content) -> std::string {
    write_file_atomically(file, content);
    try {
      models::bert::load_plan(file);
      return "";
    } catch (const DataError& error) {
      return error.what();
    }
  };
  for (const char* content : {"", "[]", "{\"format\": 1}", "{\"format\": \"one\"}"})
    EXPECT_THAT(refusal(content), HasSubstr("plan.json is no plan of `seqfuse tune`")) << content;
  EXPECT_THAT(refusal("{\"format\": 2}"), HasSubstr("its format is 2; this seqfuse reads 1"));
  Plan plan = plan_of({});
  plan.scheme = 1365;
  save_plan(plan, file);
  EXPECT_THROW(models::bert::load_plan(file), DataError);
}

}  // namespace
}  // namespace seqfuse::plan_test
