// Text in generate and perplexity. The model says a known chain of bytes again and again, so that
// every text is known.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cli/background_process.h"
#include "tests/cli/language_model.h"
#include "tests/cli/seqfuse_process.h"

#ifdef SEQFUSE_HAS_TOKENIZER
#include "base/utf8.h"
#include "tests/text/small_tokenizer.h"
#endif

namespace seqfuse::generate_text_test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;

#ifdef SEQFUSE_HAS_TOKENIZER
constexpr int64_t kTokens = 260;  // of small_tokenizer: bytes are their own ids

class GenerateText : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    directory_ = new TemporaryDirectory;
    write_model(directory_->path(), kTokens, "x\u20ACy\u00E9\n");
  }
  static void TearDownTestSuite() { delete directory_; }

  // A model with the small tokenizer that repeats the bytes of a text.
  static void write_model(const fs::path& folder, int64_t vocab, const std::string& chain,
                          const std::vector<int64_t>& more = {}) {
    LanguageModel model;
    model.vocab = vocab;
    model.hidden = 264;
    model.inner = 8;
    model.layers = 1;
    std::vector<int64_t> ids;
    for (const char byte : chain) ids.push_back(static_cast<uint8_t>(byte));
    ids.insert(ids.end(), more.begin(), more.end());
    model.more_config = {{"eos_token_id", vocab - 1}};
    model.follow(ids);
    model.write(folder);
    std::ofstream(folder / "tokenizer.json") << text::small_tokenizer();
  }

  static std::string folder() { return directory_->path().string(); }
  static Outcome generate(const std::string& arguments, const std::string& model = folder()) {
    return run_seqfuse("generate " + model + " --device cpu " + arguments);
  }
  static std::string text_file(const std::string& content) {
    const std::string file = folder() + "/text.txt";
    std::ofstream(file) << content;
    return file;
  }

 private:
  static inline TemporaryDirectory* directory_ = nullptr;
};

TEST_F(GenerateText, ContinuesText) {
  EXPECT_EQ(generate("--max-new-tokens 11 --prompt 'a\u00E9 x'").out, "\u20ACy\u00E9\nx\u20AC\n");
}

TEST_F(GenerateText, PrintsWhatIsThereOfACharacterAtTheEnd) {
  EXPECT_EQ(generate("--max-new-tokens 2 --prompt x").out, "\uFFFD\n");
}

TEST_F(GenerateText, JsonHasIdsAndText) {
  const Outcome outcome = generate("--max-new-tokens 4 --json --prompt abx");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(json::parse(outcome.out), json({{"prompt_ids", {256, 'x'}},
                                            {"ids", {0xE2, 0x82, 0xAC, 'y'}},
                                            {"text", "\u20ACy"},
                                            {"finish", "length"}}));
  const Outcome by_ids = generate("--max-new-tokens 4 --json --ids 256,120");
  EXPECT_EQ(by_ids.out, outcome.out);
}

TEST_F(GenerateText, StopStringsEndTheText) {
  const Outcome shown = generate("--max-new-tokens 30 --prompt x --stop y\u00E9 --stop zzz");
  EXPECT_EQ(shown.out, "\u20AC\n");
  const json line =
      json::parse(generate("--max-new-tokens 30 --json --prompt x --stop y\u00E9").out);
  EXPECT_EQ(line["text"], "\u20AC");
  EXPECT_EQ(line["finish"], "stop");
  EXPECT_EQ(line["ids"], json({0xE2, 0x82, 0xAC, 'y', 0xC3, 0xA9}));
  // Also for ids, with a tokenizer.
  EXPECT_EQ(generate("--max-new-tokens 30 --ids 120 --stop y").out, "226,130,172,121\n");
}

TEST_F(GenerateText, AStopStringThatNeverComesLeavesTheTextWhole) {
  const Outcome outcome = generate("--max-new-tokens 4 --json --prompt x --stop y\u00E9z");
  EXPECT_EQ(json::parse(outcome.out)["text"], "\u20ACy");
  EXPECT_EQ(json::parse(outcome.out)["finish"], "length");
  EXPECT_EQ(generate("--max-new-tokens 4 --prompt x --stop y\u00E9z").out, "\u20ACy\n");
}

TEST_F(GenerateText, SeveralPromptsComeInTheirOrder) {
  const std::string prompts = "--max-new-tokens 3 --prompt x --prompt y --prompt '[x,y]' ";
  const std::string expected =
      "==> prompt 1 <==\n\u20AC\n==> prompt 2 <==\n\u00E9\n\n"
      "==> prompt 3 <==\n";
  const Outcome together = generate(prompts);
  EXPECT_THAT(together.out, testing::StartsWith(expected));
  EXPECT_EQ(generate(prompts + "--batch-size 1").out, together.out);
  const Outcome ended = generate(prompts + "--stop \u20AC --json");
  std::istringstream lines(ended.out);
  std::string line;
  ASSERT_TRUE(std::getline(lines, line));
  EXPECT_EQ(json::parse(line)["text"], "");
  ASSERT_TRUE(std::getline(lines, line));
  EXPECT_EQ(json::parse(line)["text"], "\u00E9\n");
  ASSERT_TRUE(std::getline(lines, line));
  EXPECT_EQ(json::parse(line)["prompt_ids"], json({'[', 'x', ',', 'y', ']'}));
}

TEST_F(GenerateText, PromptsOfFiles) {
  const std::string file = text_file("ab\n\u20ACx");
  const Outcome outcome = generate("--max-new-tokens 3 --json --prompt-file " + file);
  EXPECT_EQ(json::parse(outcome.out)["prompt_ids"], json({256, '\n', 0xE2, 0x82, 0xAC, 'x'}));
  EXPECT_EQ(json::parse(outcome.out)["text"], "\u20AC");
}

TEST_F(GenerateText, TheEndTokenEndsTheText) {
  const TemporaryDirectory other;
  write_model(other.path(), kTokens, "xyz", {259});
  const std::string model = other.path().string();
  const json ended = json::parse(generate("--json --prompt x", model).out);
  EXPECT_EQ(ended["text"], "yz");
  EXPECT_EQ(ended["finish"], "eos");
  const json on =
      json::parse(generate("--json --prompt x --ignore-eos --max-new-tokens 5", model).out);
  EXPECT_EQ(on["ids"], json({'y', 'z', 259, 'x', 'y'}));
  EXPECT_EQ(on["text"], "yzxy");
}

TEST_F(GenerateText, RefusesTextThatCannotBeAPrompt) {
  EXPECT_THAT(generate("--prompt ''").err, HasSubstr("--prompt: the text is empty"));
  EXPECT_EQ(generate("--prompt ''").code, 1);
  EXPECT_THAT(generate("--prompt 'ab\xFF'").err,
              HasSubstr("--prompt: the text is not UTF-8: byte 2 (0xFF)"));
  const std::string file = text_file("a\xC3");
  EXPECT_THAT(generate("--prompt-file " + file).err,
              HasSubstr(file + ": the text is not UTF-8: byte 1 (0xC3)"));
  EXPECT_THAT(generate("--prompt-file " + text_file("")).err, HasSubstr("the text is empty"));
  EXPECT_THAT(generate("--prompt-file /nowhere/x").err, HasSubstr("/nowhere/x"));
  EXPECT_THAT(generate("--prompt x --stop ''").err, HasSubstr("a stop string is empty"));
  EXPECT_THAT(generate("--prompt " + std::string(65, 'x')).err,
              HasSubstr("prompt 1 has 65 tokens, the full cache holds 64"));
  EXPECT_EQ(generate("--prompt x --ids 5").code, 2);  // one kind of prompt a call
}

TEST_F(GenerateText, TokenizerAndModelMustBelongTogether) {
  const TemporaryDirectory small;
  write_model(small.path(), 259, "xy");
  const std::string model = small.path().string();
  EXPECT_THAT(generate("--prompt x", model).err,
              AllOf(HasSubstr("tokenizer.json has ids up to 259"), HasSubstr("a vocabulary of 259"),
                    HasSubstr("do not belong together")));
  EXPECT_EQ(generate("--prompt x", model).code, 1);
  EXPECT_THAT(run_seqfuse("perplexity " + model + " --text-file " + text_file("xyx")).err,
              HasSubstr("do not belong together"));
  // Ids do without text.
  const Outcome ids = generate("--ids 120 --max-new-tokens 3", model);
  EXPECT_EQ(ids.out, "121,120,121\n");
  EXPECT_THAT(ids.err, HasSubstr("ids are printed without text"));
  // More rows than tokens are usual; a token that has no text is told.
  const TemporaryDirectory large;
  write_model(large.path(), 264, "xy", {262});
  const Outcome unknown = generate("--prompt x --max-new-tokens 4", large.path().string());
  EXPECT_EQ(unknown.out, "yxy\n");
  EXPECT_THAT(unknown.err, HasSubstr("1 of 4 new tokens are not in tokenizer.json"));
  fs::remove(large.path() / "tokenizer.json");
  EXPECT_THAT(generate("--prompt x", large.path().string()).err,
              HasSubstr("has no tokenizer.json"));
  std::ofstream(large.path() / "tokenizer.json") << "{";
  EXPECT_THAT(generate("--prompt x", large.path().string()).err, HasSubstr("is not JSON"));
}

TEST_F(GenerateText, InterruptionPrintsWholeCharacters) {
  Background process({test::binary(), "generate", folder(), "--device", "cpu", "--prompt", "x",
                      "--max-new-tokens", "100000000", "--cache", "window"});
  const std::string twice = "\u20ACy\u00E9\nx\u20ACy\u00E9\nx";
  for (int wait = 0; wait < 12000 && process.output().find(twice) == std::string::npos; ++wait) {
    ASSERT_FALSE(process.ended()) << process.output();
    const std::string output = process.output();
    ASSERT_EQ(find_invalid_utf8(output), output.size());
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  kill(process.pid(), SIGINT);
  const Outcome outcome = process.wait();
  EXPECT_EQ(outcome.code, 130);
  EXPECT_THAT(outcome.out, HasSubstr(twice));
  EXPECT_THAT(outcome.out, EndsWith("\n"));
}

// The first text ends soon, and its line is printed then; the second, which never ends, is cut off.
TEST_F(GenerateText, InterruptedJsonHasTheTextSoFar) {
  Background process({test::binary(), "generate", folder(), "--device", "cpu", "--prompt", "x",
                      "--prompt", "q", "--stop", "y", "--max-new-tokens", "100000000", "--cache",
                      "window", "--json"});
  process.wait_for("}\n");
  kill(process.pid(), SIGINT);
  const Outcome outcome = process.wait();
  EXPECT_EQ(outcome.code, 130);
  std::istringstream lines(outcome.out.substr(outcome.out.find("{\"")));
  std::string line;
  ASSERT_TRUE(std::getline(lines, line));
  EXPECT_EQ(json::parse(line)["text"], "\u20AC");
  EXPECT_EQ(json::parse(line)["finish"], "stop");
  ASSERT_TRUE(std::getline(lines, line));
  EXPECT_EQ(json::parse(line)["finish"], "interrupted");
  EXPECT_GE(json::parse(line)["ids"].size(), 4U);
  EXPECT_EQ(json::parse(line)["text"], std::string(json::parse(line)["ids"].size(), '\0'));
}

TEST_F(GenerateText, PerplexityOfText) {
  const std::string of_text =
      "perplexity " + folder() + " --device cpu --json --text-file " + text_file("ab\u20ACx");
  const Outcome outcome = run_seqfuse(of_text);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(json::parse(outcome.out)["tokens"], 4);
  std::ofstream(folder() + "/ids.txt") << "256,226,130,172,120";
  EXPECT_EQ(run_seqfuse("perplexity " + folder() + " --device cpu --json --ids-file " + folder() +
                        "/ids.txt")
                .out,
            outcome.out);
  EXPECT_THAT(run_seqfuse("perplexity " + folder() + " --text-file " + text_file("a\xFF")).err,
              HasSubstr("text.txt: the text is not UTF-8: byte 1"));
}
#else
TEST(GenerateText, ABuildWithoutTokenizerSaysWhatToInstall) {
  const TemporaryDirectory directory;
  LanguageModel model;
  model.randomise();
  model.write(directory.path());
  const std::string folder = directory.path().string();
  for (const std::string& arguments :
       {"generate " + folder + " --prompt x", "generate " + folder + " --ids 5 --stop x",
        "perplexity " + folder + " --text-file " + folder + "/config.json"}) {
    const Outcome outcome = run_seqfuse(arguments);
    EXPECT_EQ(outcome.code, 2) << arguments;
    EXPECT_THAT(outcome.err,
                AllOf(HasSubstr("this build has no tokenizer"), HasSubstr("libpcre2-dev")));
  }
  EXPECT_EQ(run_seqfuse("generate " + folder + " --ids 5 --max-new-tokens 2").code, 0);
}
#endif

}  // namespace
}  // namespace seqfuse::generate_text_test
