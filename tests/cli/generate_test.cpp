// seqfuse generate and perplexity from the command line, on a small random model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/cli/background_process.h"
#include "tests/cli/language_model.h"
#include "tests/cli/seqfuse_process.h"

namespace seqfuse::generate_test {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

class GenerateVerb : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    directory_ = new TemporaryDirectory;
    LanguageModel model;
    model.randomise();
    model.write(directory_->path());
  }
  static void TearDownTestSuite() { delete directory_; }

  static std::string file(const std::string& name) { return (directory_->path() / name).string(); }
  static Outcome generate(const std::string& arguments) {
    return run_seqfuse("generate " + directory_->path().string() + " --device cpu " + arguments);
  }
  static Outcome perplexity(const std::string& arguments) {
    return run_seqfuse("perplexity " + directory_->path().string() + " --device cpu " + arguments);
  }
  static std::string ids_file(int64_t count) {
    std::ofstream out(file("ids.i32"), std::ios::binary);
    for (int64_t i = 0; i < count; ++i) {
      const auto id = static_cast<int32_t>((i * i + 3) % 50);
      out.write(reinterpret_cast<const char*>(&id), sizeof(id));
    }
    return file("ids.i32");
  }

 private:
  static inline TemporaryDirectory* directory_ = nullptr;
};

TEST_F(GenerateVerb, StreamsIdsAndPrintsJson) {
  const Outcome streamed = generate("--ids 5,34,3 --max-new-tokens 6");
  EXPECT_EQ(streamed.code, 0) << streamed.err;
  EXPECT_THAT(streamed.err, AllOf(HasSubstr("weights"), HasSubstr("cache"), HasSubstr("1 text)")));
  const json object = json::parse(generate("--ids 5,34,3 --max-new-tokens 6 --json").out);
  EXPECT_EQ(object["prompt_ids"], json({5, 34, 3}));
  EXPECT_EQ(object["finish"], "length");
  const std::vector<int64_t> ids = object["ids"];
  ASSERT_EQ(ids.size(), 6U);
  std::string text;
  for (const int64_t id : ids) text += (text.empty() ? "" : ",") + std::to_string(id);
  EXPECT_EQ(streamed.out, text + "\n");
}

TEST_F(GenerateVerb, SeveralPromptsInBatches) {
  const std::string prompts = "--ids 5,34,3 --ids 7 --ids 1,2,3,4,5,6 --max-new-tokens 9 --json ";
  const Outcome together = generate(prompts), apart = generate(prompts + "--batch-size 2");
  EXPECT_EQ(together.code, 0) << together.err;
  EXPECT_EQ(together.out, apart.out);
  const Outcome drawn = generate(prompts + "--top-p 0.9 --seed 3");
  EXPECT_EQ(drawn.out, generate(prompts + "--top-p 0.9 --seed 3 --batch-size 1").out);
  EXPECT_NE(drawn.out, together.out);
  std::istringstream lines(together.out);
  std::string line;
  int count = 0;
  for (; std::getline(lines, line); ++count) EXPECT_EQ(json::parse(line)["ids"].size(), 9U);
  EXPECT_EQ(count, 3);
}

TEST_F(GenerateVerb, CacheRules) {
  const std::string prompt = "--ids 5,34,3,8,9 --max-new-tokens 40 --temperature 1 --json ";
  const std::string full = generate(prompt).out;
  EXPECT_EQ(generate(prompt + "--cache streaming --start 2 --recent 60").out, full);
  EXPECT_NE(generate(prompt + "--cache streaming --start 2 --recent 4").out, full);
  const Outcome ended = generate(prompt + "--cache-size 10");
  EXPECT_EQ(json::parse(ended.out)["finish"], "cache_full");
  EXPECT_EQ(json::parse(ended.out)["ids"].size(), 6U);
  EXPECT_THAT(ended.err, HasSubstr("full after 6 new tokens"));
  const Outcome refused = generate(prompt + "--cache-size 4");
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("prompt 1 has 5 tokens, the full cache holds 4"));
}

TEST_F(GenerateVerb, WeightsOnTheCpu) {
  const std::string prompt = "--ids 5,34,3 --max-new-tokens 9 --temperature 1 --json ";
  const Outcome given = generate(prompt), same = generate(prompt + "--weights float32");
  EXPECT_THAT(given.err, HasSubstr("Float on cpu: weights"));
  EXPECT_EQ(given.out, same.out);
  const Outcome int8 = generate(prompt + "--weights int8");
  ASSERT_EQ(int8.code, 0) << int8.err;
  EXPECT_THAT(int8.err, HasSubstr("Float with int8 weights on cpu: weights"));
  const std::string text = "--ids-file " + ids_file(60) + " --json ";
  const auto loss = [&](const std::string& flags) {
    return json::parse(perplexity(text + flags).out)["mean_nll"].get<double>();
  };
  EXPECT_NE(loss("--weights int8"), loss(""));
  EXPECT_NEAR(loss("--weights int8"), loss(""), 0.2);
  EXPECT_NEAR(loss("--weights float16"), loss(""), 0.02);
  const Outcome refused = generate(prompt + "--weights int8 --dtype float64");
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("int8 weights with --dtype float64"));
}

TEST_F(GenerateVerb, RefusesWhatItCannotRead) {
  EXPECT_THAT(generate("").err, HasSubstr("generate"));
  EXPECT_EQ(generate("").code, 2);
  EXPECT_THAT(generate("--ids 5,x").err, HasSubstr("--ids has 'x'"));
  EXPECT_THAT(generate("--ids ''").err, HasSubstr("--ids is empty"));
  EXPECT_THAT(generate("--ids 50").err,
              HasSubstr("prompt 1: the id 50 is not in the model's vocabulary"));
  EXPECT_THAT(generate("--ids 5 --temperature -1").err, HasSubstr("the temperature is -1"));
  EXPECT_THAT(run_seqfuse("generate /nowhere --ids 5").err, HasSubstr("/nowhere is not a folder"));
}

TEST_F(GenerateVerb, HelpFitsAScreen) {
  for (const char* verb : {"generate", "perplexity", "bench"}) {
    const std::string help = run_seqfuse(std::string(verb) + " --help").out;
    EXPECT_LE(std::count(help.begin(), help.end(), '\n'), 40) << help;
    std::istringstream lines(help);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100U) << line;
  }
}

TEST_F(GenerateVerb, InterruptionPrintsWhatIsThere) {
  Background process({test::binary(), "generate", file(""), "--device", "cpu", "--ids", "5",
                      "--max-new-tokens", "100000000", "--cache", "window"});
  // The tokens are on the last line, after log messages.
  const auto tokens = [&] {
    const std::string output = process.output();
    return output.substr(output.rfind('\n') + 1);
  };
  for (int wait = 0; wait < 6000 && tokens().find(',') == std::string::npos; ++wait) {
    ASSERT_FALSE(process.ended()) << process.output();
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  kill(process.pid(), SIGINT);
  const Outcome outcome = process.wait();
  EXPECT_EQ(outcome.code, 130);
  EXPECT_THAT(outcome.out, testing::EndsWith("\n"));
  const std::string last = outcome.out.substr(outcome.out.rfind('\n', outcome.out.size() - 2) + 1);
  EXPECT_THAT(last, testing::MatchesRegex("[0-9]+(,[0-9]+)+\n"));
}

TEST_F(GenerateVerb, PerplexityIsThatOfTheLosses) {
  const std::string text = "--ids-file " + ids_file(60) + " --json --losses " + file("losses");
  const Outcome outcome = perplexity(text);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const json result = json::parse(outcome.out);
  EXPECT_EQ(result["tokens"], 59);
  std::ifstream in(file("losses"));
  double sum = 0, loss = 0;
  int count = 0;
  for (; in >> loss; ++count) sum += loss;
  EXPECT_EQ(count, 59);
  EXPECT_NEAR(result["mean_nll"].get<double>(), sum / 59, 1e-12);
  EXPECT_NEAR(result["perplexity"].get<double>(), std::exp(sum / 59), 1e-9);
  const json faster = json::parse(perplexity(text + " --tokens-per-pass 16").out);
  EXPECT_NEAR(faster["mean_nll"].get<double>(), sum / 59, 1e-5);
  const json streaming = json::parse(perplexity(text + " --cache streaming --recent 8").out);
  EXPECT_GT(std::abs(streaming["mean_nll"].get<double>() - sum / 59), 1e-3);
}

TEST_F(GenerateVerb, IdsOfAFileMayBeText) {
  const std::string raw = perplexity("--json --ids-file " + ids_file(4)).out;
  std::ofstream(file("ids.txt")) << "3, 4\n7 12\n";
  EXPECT_EQ(perplexity("--json --ids-file " + file("ids.txt")).out, raw);
  EXPECT_EQ(json::parse(raw)["tokens"], 3);
}

TEST_F(GenerateVerb, InterruptedPerplexityIsThatOfTheTokensSoFar) {
  const std::string ids = ids_file(3'000'000), losses = file("some_losses");
  Background process({test::binary(), "perplexity", file(""), "--device", "cpu", "--ids-file", ids,
                      "--cache", "window", "--json", "--losses", losses});
  process.wait_for("tokens/s");  // the progress that is printed every few seconds
  kill(process.pid(), SIGINT);
  const Outcome outcome = process.wait();
  EXPECT_EQ(outcome.code, 130);
  const json result = json::parse(outcome.out.substr(outcome.out.find('{')));
  EXPECT_EQ(result["interrupted"], true);
  EXPECT_GT(result["perplexity"], 1);
  std::ifstream in(losses);
  const auto lines = std::count(std::istreambuf_iterator<char>(in), {}, '\n');
  EXPECT_EQ(result["tokens"], lines);
  EXPECT_GT(lines, 0);
}

TEST_F(GenerateVerb, MemoryThatIsNotThereIsRefusedBeforeAnythingIsAllocated) {
  const Outcome outcome =
      generate("--ids 5 --max-new-tokens 9 --cache window --recent 900000000000");
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err,
              AllOf(HasSubstr("[generate] Float on cpu: weights"), HasSubstr("not enough memory"),
                    HasSubstr("these fit: a cache of"), HasSubstr("tokens for 1 text\n")));
}

TEST_F(GenerateVerb, PerplexityRefusesWhatItCannotRead) {
  EXPECT_THAT(perplexity("--ids-file " + ids_file(66)).err,
              HasSubstr("the text has 65 tokens, the full cache holds 64"));
  EXPECT_THAT(perplexity("--ids-file " + ids_file(1)).err, HasSubstr("at least 2 are needed"));
  std::ofstream(file("odd.i32")) << "abc";
  EXPECT_THAT(perplexity("--ids-file " + file("odd.i32")).err, HasSubstr("it has 3 bytes"));
  std::ofstream(file("large.txt")) << "5, 99999999999";
  EXPECT_THAT(perplexity("--ids-file " + file("large.txt")).err,
              HasSubstr("the id 99999999999 is above 2147483647"));
  EXPECT_THAT(perplexity("--ids-file " + file("none.i32")).err, HasSubstr("none.i32"));
}

}  // namespace
}  // namespace seqfuse::generate_test
