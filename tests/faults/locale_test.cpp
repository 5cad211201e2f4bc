// With a decimal comma in the locale, every file and every line equals those of the C locale.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "tests/faults/preload.h"
#include "tests/faults/small_run.h"
#include "tests/paths.h"

namespace seqfuse::locale_test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using Environment = std::map<std::string, std::string>;

class Locale : public testing::Test {
 protected:
  void SetUp() override {
    if (kSanitized) GTEST_SKIP() << "sanitizers must be loaded first";
    const std::string made = (directory_.path() / "locales/de_DE.UTF-8").string();
    fs::create_directories(directory_.path() / "locales");
    const Outcome outcome =
        Background({"/bin/sh", "-c", "localedef -i de_DE -f UTF-8 " + made}).wait();
    if (!fs::exists(made)) GTEST_SKIP() << "no localedef that makes de_DE here: " << outcome.out;
    comma_ = preloaded(SEQFUSE_DECIMAL_COMMA);
    comma_["LOCPATH"] = (directory_.path() / "locales").string();
    comma_["LC_ALL"] = "de_DE.UTF-8";
  }

  // Every file of a folder by name, except those that contain times.
  static std::map<std::string, std::string> files_of(const fs::path& folder) {
    std::map<std::string, std::string> files;
    for (const auto& entry : fs::recursive_directory_iterator(folder)) {
      if (!entry.is_regular_file() || entry.path().filename() == "state.json") continue;
      if (entry.path().filename() == "metrics.jsonl") continue;
      files[fs::relative(entry.path(), folder).string()] = read_file(entry.path());
    }
    return files;
  }

  // A user's commands in a separate folder with the same names. Returns the output of evaluate.
  std::string work_in(const std::string& name, const Environment& environment) const {
    const fs::path folder = directory_.path() / name;
    fs::create_directories(folder);
    const SmallData& small = SmallData::get();
    const std::vector<std::string> commands = {
        fmt::format("preprocess --dataset-name csv --input {} --output data --memory-limit 0.25GB "
                    "--time-column timestamp --action-column rating",
                    small.log()),
        fmt::format("train ranking --gin-config-file {} --data data --output run --threads 1 --gin "
                    "OptimizerArgs.weight_decay=0.0625 --gin TrainerArgs.max_train_iters=10 --gin "
                    "DatasetArgs.max_num_candidates=1",
                    small.config()),
        "report run --output report.html", "evaluate run --json"};
    std::string printed;
    for (const std::string& command : commands) {
      const Outcome outcome =
          Background({"/bin/sh", "-c",
                      fmt::format("cd {} && exec {} {}", folder.string(), test::binary(), command)},
                     environment)
              .wait();
      EXPECT_EQ(outcome.code, 0) << command << "\n" << outcome.out;
      printed = outcome.out;
    }
    // Replace the folder's path.
    for (size_t at; (at = printed.find(folder.string())) != std::string::npos;) {
      printed.erase(at, folder.string().size());
    }
    return printed;
  }

  TemporaryDirectory directory_;
  Environment comma_;
};

TEST_F(Locale, ADecimalCommaChangesNothing) {
  const std::string plain = work_in("plain", {{"LC_ALL", "C"}});
  const std::string comma = work_in("comma", comma_);
  EXPECT_THAT(plain, HasSubstr("\"AUC"));
  EXPECT_EQ(plain, comma);
  const fs::path a = directory_.path() / "plain", b = directory_.path() / "comma";
  EXPECT_TRUE(files_of(a / "data") == files_of(b / "data"));
  EXPECT_EQ(metrics_of((a / "run").string()), metrics_of((b / "run").string()));
  auto run_a = files_of(a / "run"), run_b = files_of(b / "run");
  run_a.erase("run.json");  // contains the dataset's path
  run_b.erase("run.json");
  EXPECT_THAT(run_a["operative_config.gin"], HasSubstr("0.0625"));
  for (const auto& [file, content] : run_a) {
    EXPECT_TRUE(run_b[file] == content) << file << " differs";
  }
}

}  // namespace
}  // namespace seqfuse::locale_test
