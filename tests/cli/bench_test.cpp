// seqfuse bench decode on a small random model: the figures belong together.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/cli/language_model.h"
#include "tests/cli/seqfuse_process.h"

namespace seqfuse::bench_test {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

class BenchVerb : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    directory_ = new TemporaryDirectory;
    LanguageModel model;
    model.randomise();
    model.write(directory_->path());
  }
  static void TearDownTestSuite() { delete directory_; }

  static std::string folder() { return directory_->path().string(); }
  static Outcome bench(const std::string& arguments) {
    return run_seqfuse("bench decode --device cpu " + arguments);
  }
  static json report(const std::string& arguments) {
    const Outcome outcome = bench(folder() + " --json " + arguments);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return json::parse(outcome.out);
  }

 private:
  static inline TemporaryDirectory* directory_ = nullptr;
};

// 4-byte values: layers 2 x (16 (48 + 16 + 32 + 32) + 48 + 16 + 32 + 16 + 64), norm 32, output 800;
// a token in the cache: 2 x 2 x 16.
constexpr int64_t kWeightBytes = 4 * (2 * (16 * 128 + 176) + 32 + 800), kTokenBytes = 4 * 64;

TEST_F(BenchVerb, ReportsEachLengthAndBatch) {
  const json results = report("--cache-lengths 5,30 --batch-sizes 1,3 --tokens 7")["results"];
  ASSERT_EQ(results.size(), 4U);
  for (size_t i = 0; i < 4; ++i) {
    const json& point = results[i];
    const int64_t batch = i % 2 == 0 ? 1 : 3, length = i < 2 ? 5 : 30;
    EXPECT_EQ(point["batch"], batch);
    EXPECT_EQ(point["cache_length"], length);
    // The middle of the timed steps: three that are not timed, then three, then itself.
    EXPECT_EQ(point["step_bytes"], kWeightBytes + batch * (length + 7) * kTokenBytes);
    const double seconds = point["tpot_ms"].get<double>() / 1e3;
    EXPECT_GT(seconds, 0);
    EXPECT_LE(point["tpot_ms_fastest"], point["tpot_ms"]);
    EXPECT_GE(point["tpot_ms_slowest"], point["tpot_ms"]);
    EXPECT_NEAR(point["tokens_per_second"].get<double>() * seconds, double(batch), 1e-6);
    EXPECT_NEAR(point["bytes_per_second"].get<double>() * seconds,
                point["step_bytes"].get<double>(), 1e-3);
    EXPECT_GT(point["copy_bytes_per_second"], 1e8);
    EXPECT_NEAR(point["share_of_copy"].get<double>() * point["copy_bytes_per_second"].get<double>(),
                point["bytes_per_second"].get<double>(), 1);
    EXPECT_GT(point["first_token_ms"], 0);
    EXPECT_TRUE(point["launches"].is_null());  // of a GPU
  }
}

TEST_F(BenchVerb, CountsWhatACacheStillHolds) {
  const json point =
      report("--cache-lengths 40 --batch-sizes 1 --tokens 3 --cache streaming --start 2 --recent 6")
          ["results"][0];
  EXPECT_EQ(point["step_bytes"], kWeightBytes + 9 * kTokenBytes);
}

TEST_F(BenchVerb, PrintsATable) {
  const Outcome outcome = bench(folder() + " --cache-lengths 9 --batch-sizes 2 --tokens 2");
  EXPECT_THAT(outcome.out,
              AllOf(HasSubstr("TPOT ms"), HasSubstr("1st token ms"), HasSubstr(" % ")));
  EXPECT_EQ(std::count(outcome.out.begin(), outcome.out.end(), '\n'), 2);
  EXPECT_THAT(outcome.err, HasSubstr("[bench] Float on cpu: weights"));
}

TEST_F(BenchVerb, StreamsATextAgainAndAgain) {
  std::ofstream(folder() + "/text.txt") << "3, 1, 4, 1, 5, 9, 2";
  const std::string text = " --ids-file " + folder() + "/text.txt";
  const std::string arguments = "--stream 41 --cache streaming --start 2 --recent 6" + text;
  const json streamed = report(arguments);
  EXPECT_EQ(streamed["part"].get<int>(), 41);
  ASSERT_EQ(streamed["parts"].size(), 1U);
  EXPECT_EQ(streamed["parts"][0]["tokens"].get<int>(), 41);
  EXPECT_GT(streamed["parts"][0]["tpot_ms"].get<double>(), 0);
  EXPECT_FALSE(streamed["flat"].get<bool>()) << "one part is not compared with any";
  const Outcome table = bench(folder() + " " + arguments);
  EXPECT_THAT(table.out, AllOf(HasSubstr("bytes in use"), HasSubstr("not flat: the 0 parts")));
  EXPECT_THAT(bench(folder() + " --stream 70" + text).err,
              HasSubstr("70 tokens in a full cache of 64"));
  EXPECT_THAT(bench(folder() + " --stream 9").err, HasSubstr("--stream needs --ids-file"));
  for (const std::string flag : {"--cache-lengths", "--batch-sizes", "--tokens"}) {
    EXPECT_THAT(bench(folder() + " --stream 9 " + flag + " 5" + text).err,
                HasSubstr("one by one; leave out " + flag));
  }
}

TEST_F(BenchVerb, TheLadderIsOfAGpu) {
  EXPECT_THAT(bench(folder() + " --ladder").err, HasSubstr("the device is cpu"));
  EXPECT_THAT(bench(folder() + " --ladder --weights int8").err, HasSubstr("got int8"));
  EXPECT_THAT(bench(folder() + " --ladder --text-model " + folder()).err,
              HasSubstr("--text-model and --ids-file go together"));
  EXPECT_THAT(bench(folder() + " --ladder --stream 5").err, HasSubstr("give one"));
  EXPECT_THAT(bench(folder() + " --ladder --batch-sizes 1,2").err,
              HasSubstr("at one length and batch size; got --batch-sizes 1,2"));
  EXPECT_THAT(bench(folder() + " --ids-file x").err, HasSubstr("for --ladder and --stream"));
}

TEST_F(BenchVerb, MeasuresNamedShapes) {
  const Outcome outcome = bench(
      "--shape pythia-70m --cache-lengths 4 --batch-sizes 1 --tokens 1 --dtype bfloat16 --json");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  const json report = json::parse(outcome.out);
  EXPECT_EQ(report["dtype"], "BFloat16");
  EXPECT_EQ(report["model"], "pythia-70m");
  constexpr int64_t kBiases = 6 * (3 * 512 + 512 + 2048 + 512);  // float32, unlike the weights
  EXPECT_EQ(report["results"][0]["step_bytes"],
            2 * (70426624 - 50304 * 512) + 2 * kBiases + 2 * 2 * 6 * 512 * (4 + 3 + 0 + 1));
}

TEST_F(BenchVerb, RefusesWhatItCannotMeasure) {
  EXPECT_EQ(bench("").code, 2);
  EXPECT_THAT(bench("").err, HasSubstr("either the folder of a model or --shape"));
  EXPECT_THAT(bench(folder() + " --shape pythia-70m").err, HasSubstr("either the folder"));
  EXPECT_THAT(bench("--shape pythia-71m").err,
              AllOf(HasSubstr("no shape 'pythia-71m'"), HasSubstr("did you mean 'pythia-70m'"),
                    HasSubstr("gpt-neox-20b")));
  EXPECT_THAT(bench(folder() + " --cache recompute").err, HasSubstr("keeps no cache"));
  EXPECT_THAT(bench(folder() + " --cache-lengths 0").err, HasSubstr("0 is not a whole number"));
  EXPECT_EQ(run_seqfuse("bench train").code, 2);
  EXPECT_THAT(bench("--shape gpt-neox-20b --batch-sizes 100000").err,
              HasSubstr("not enough memory"));
}

}  // namespace
}  // namespace seqfuse::bench_test
