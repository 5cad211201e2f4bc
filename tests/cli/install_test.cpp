// The C++ API as installed: found by CMake and called by the project in examples/cpp.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "base/file.h"
#include "tests/cli/seqfuse_process.h"
#include "tests/cli/trained_runs.h"
#include "tests/temporary_directory.h"

namespace seqfuse::install_test {
namespace {

using testing::HasSubstr;
using testing::Not;

// Runs a command line in a shell.
Outcome run_command(const std::string& command) {
  Outcome outcome;
  FILE* pipe = popen(("env -u LD_LIBRARY_PATH " + command + " 2>&1").c_str(), "r");
  std::array<char, 4096> buffer;
  while (const size_t n = std::fread(buffer.data(), 1, buffer.size(), pipe)) {
    outcome.out.append(buffer.data(), n);
  }
  outcome.code = WEXITSTATUS(pclose(pipe));
  return outcome;
}

class InstallTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    directory_ = new TemporaryDirectory;
    const Outcome installed =
        run_command(fmt::format("{} --install {} --prefix {}", SEQFUSE_CMAKE, build(), prefix()));
    ASSERT_EQ(installed.code, 0) << installed.out;
  }
  static void TearDownTestSuite() {
    delete directory_;
    example_.clear();
  }

  static std::string build() {
    return std::filesystem::path(test::binary()).parent_path().parent_path().string();
  }
  static std::string prefix() { return (directory_->path() / "prefix").string(); }
  static std::string path(const char* name) { return (directory_->path() / name).string(); }

  // The program of examples/cpp; the suite's first test that asks for it builds it.
  static const std::string& example() {
    if (example_.empty()) build_example();
    return example_;
  }

 private:
  static void build_example() {
    const Outcome configured = run_command(
        fmt::format("{} -S {}/examples/cpp -B {} -DCMAKE_PREFIX_PATH={} -DCMAKE_CXX_COMPILER={} "
                    "-DCMAKE_CXX_FLAGS='{}'",
                    SEQFUSE_CMAKE, test::source_directory(), path("example"), prefix(),
                    SEQFUSE_CXX_COMPILER, SEQFUSE_CXX_FLAGS));
    ASSERT_EQ(configured.code, 0) << configured.out;
    const Outcome built = run_command(fmt::format("{} --build {}", SEQFUSE_CMAKE, path("example")));
    ASSERT_EQ(built.code, 0) << built.out;
    example_ = path("example") + "/example";
  }

  static inline TemporaryDirectory* directory_ = nullptr;
  static inline std::string example_;
};

TEST_F(InstallTest, LibrariesAreFoundWithoutTheBuildFolder) {
  for (const char* file : {"bin/seqfuse", "lib/libseqfuse_engine.so", "lib/libseqfuse_ops.so"}) {
    const Outcome outcome = run_command(fmt::format("readelf -d {}/{}", prefix(), file));
    ASSERT_EQ(outcome.code, 0) << outcome.out;
    EXPECT_THAT(outcome.out, HasSubstr("$ORIGIN")) << file;
    EXPECT_THAT(outcome.out, Not(HasSubstr(build()))) << file;
  }
  const Outcome outcome = run_command(
      fmt::format("{}/bin/seqfuse evaluate {}", prefix(), TrainedRuns::get().research()));
  EXPECT_EQ(outcome.code, 0) << outcome.out;
  EXPECT_THAT(outcome.out, HasSubstr("MRR"));
}

TEST_F(InstallTest, ExampleTrainsAndRecommendsAsTheCommandsDo) {
  const TrainedRuns& runs = TrainedRuns::get();
  const Outcome trained = run_seqfuse(
      fmt::format("train retrieval --gin-config-file {}/operative_config.gin --data {} --output {} "
                  "--gin TrainerArgs.log_interval=1 --gin TrainerArgs.max_train_iters=1",
                  runs.retrieval(), runs.data(), path("one_step")));
  ASSERT_EQ(trained.code, 0) << trained.text();
  const std::string metrics = read_file(path("one_step") + "/metrics.jsonl");
  const auto first = nlohmann::json::parse(metrics.substr(0, metrics.find('\n')));

  const Outcome outcome = run_command(fmt::format("{} {} {}/operative_config.gin {} u3", example(),
                                                  runs.data(), path("one_step"), runs.retrieval()));
  ASSERT_EQ(outcome.code, 0) << outcome.out;
  EXPECT_THAT(outcome.out, HasSubstr("attention: [8, 2, 8]"));
  EXPECT_THAT(outcome.out,
              HasSubstr(fmt::format("step 1 of 1: loss {:.4f} ", first["loss"].get<double>())));
  const Outcome recommended =
      run_seqfuse(fmt::format("recommend {} --user u3 --top-k 3 --json", runs.retrieval()));
  ASSERT_EQ(recommended.code, 0) << recommended.text();
  const auto items = nlohmann::json::parse(recommended.out)["items"];
  ASSERT_EQ(items.size(), 3U);
  for (const auto& item : items) {
    EXPECT_THAT(outcome.out, HasSubstr(fmt::format("\n{} {:.4f}\n", item["item"].get<std::string>(),
                                                   item["score"].get<double>())));
  }
}

TEST_F(InstallTest, ExampleSaysWhatIsWrong) {
  const Outcome outcome = run_command(example() + " /nowhere /nowhere.gin /nowhere u3");
  EXPECT_EQ(outcome.code, 1) << outcome.out;
  EXPECT_THAT(outcome.out, HasSubstr("/nowhere"));
}

}  // namespace
}  // namespace seqfuse::install_test
