// seqfuse doctor, and the checks behind it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/cpu.h"
#include "base/gpu.h"
#include "tests/cli/seqfuse_process.h"

namespace seqfuse::doctor_test {
namespace {
using nlohmann::json;
using testing::HasSubstr;

TEST(Doctor, SaysWhatThereIs) {
  const Outcome outcome = run_seqfuse("doctor");
  for (const char* part : {"seqfuse", "compiler", "torch", "arrow", "cuda", "cores", "memory",
                           "disk", "[GPU Check]"}) {
    EXPECT_THAT(outcome.out, HasSubstr(part));
  }
}

TEST(Doctor, JsonAgreesWithTheMachine) {
  const Outcome outcome = run_seqfuse("doctor --json");
  const json report = json::parse(outcome.out);
  EXPECT_GT(report["memory"]["total"], 0);
  EXPECT_GE(report["cpu"]["cores"], 1);
  EXPECT_EQ(report["gpus"].size(), probe_gpus().gpus.size());
  EXPECT_EQ(outcome.code, report["problems"].empty() ? 0 : 1);
}

TEST(Doctor, RequiredSmThatIsNotThereFails) {
  const Outcome outcome = run_seqfuse("doctor --require-sm 1.0");
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.out, HasSubstr("--require-sm"));
}

TEST(Doctor, TakesUnderscoresAndRefusesOtherFlags) {
  const Outcome underscore = run_seqfuse("doctor --require_sm 1.0");
  EXPECT_EQ(underscore.code, 1);
  EXPECT_THAT(underscore.out, HasSubstr("--require-sm 1.0"));
  const Outcome unknown = run_seqfuse("doctor --nothing");
  EXPECT_EQ(unknown.code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("was not expected: --nothing"));
}

TEST(GpuCheck, SupportedCards) {
  EXPECT_EQ(check_gpu({.name = "NVIDIA A100-SXM4-80GB", .major = 8, .minor = 0}).line,
            "[GPU Check] Detected A100 GPU (SM 8.0) - OK");
  EXPECT_EQ(check_gpu({.name = "NVIDIA H100 80GB HBM3", .major = 9, .minor = 0}).line,
            "[GPU Check] Detected H100 GPU (SM 9.0) - OK");
  EXPECT_TRUE(check_gpu({.name = "NVIDIA A800-SXM4-80GB", .major = 8, .minor = 0}).ok);
}

TEST(GpuCheck, OtherCardsAreNamedWithWhatIsSupported) {
  const GpuCheck old = check_gpu({.name = "Tesla V100-SXM2-16GB", .major = 7, .minor = 0});
  EXPECT_FALSE(old.ok);
  EXPECT_THAT(old.line, HasSubstr("V100 GPU (SM 7.0)"));
  EXPECT_THAT(old.line, HasSubstr("SM 8.x"));
  EXPECT_FALSE(check_gpu({.name = "NVIDIA B200", .major = 10, .minor = 0}).ok);
  EXPECT_EQ(short_gpu_name("NVIDIA GeForce RTX 3090"), "GeForce RTX 3090");
}

TEST(GpuCheck, RequiredSmRefusesEveryOther) {
  const Gpu h100{.name = "NVIDIA H100 80GB HBM3", .major = 9, .minor = 0};
  EXPECT_FALSE(check_gpu(h100, "8.0").ok);
  EXPECT_TRUE(check_gpu(h100, "9.0").ok);
}

TEST(Cpu, AProcessorWithoutFeaturesLacksWhatTheBuildNeeds) {
  const Cpu plain{.model = "plain", .features = {"fpu"}};
  EXPECT_EQ(missing_features(plain), built_for_features());
  EXPECT_TRUE(missing_features(this_cpu()).empty());
}

}  // namespace
}  // namespace seqfuse::doctor_test
