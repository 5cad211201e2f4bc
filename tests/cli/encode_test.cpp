// seqfuse encode.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "base/file.h"
#include "tests/cli/bert_folder.h"
#include "tests/cli/seqfuse_process.h"

namespace seqfuse::encode_cli_test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

constexpr const char* kVocabulary = "[PAD]\n[UNK]\n[CLS]\n[SEP]\nhello\nworld\n##s\n";
constexpr int64_t kWords = 7;

class Encode : public testing::Test {
 protected:
  void SetUp() override {
    bert_.write(folder_.path());
    std::ofstream(folder_.path() / "vocab.txt") << kVocabulary;
  }
  std::string path(const std::string& name) const { return (folder_.path() / name).string(); }
  std::string file(const std::string& name, const std::string& content) const {
    std::ofstream(path(name)) << content;
    return path(name);
  }
  Outcome encode(const std::string& arguments) const {
    return run_seqfuse("encode " + folder_.path().string() + " --device cpu --output " +
                       path("x.npy") + " " + arguments);
  }
  void expect_refusal(const std::string& arguments, int code, const std::string& message) const {
    const Outcome outcome = encode(arguments);
    EXPECT_EQ(outcome.code, code) << outcome.text();
    EXPECT_THAT(outcome.err, HasSubstr(message));
    EXPECT_FALSE(fs::exists(path("x.npy")));
  }
  // x.npy has a row for each sentence: the mean state of these ids.
  void expect_means(const std::vector<std::vector<int64_t>>& of_ids) const {
    const std::string content = read_file(path("x.npy"));
    const size_t values = of_ids.size() * BertFolder::kHidden;
    EXPECT_THAT(content.substr(0, 128),
                HasSubstr("'shape': (" + std::to_string(of_ids.size()) + ", 8)"));
    ASSERT_GT(content.size(), values * sizeof(float));
    std::vector<float> found(values);
    std::memcpy(found.data(), content.data() + content.size() - values * sizeof(float),
                values * sizeof(float));
    for (size_t row = 0; row < of_ids.size(); ++row) {
      const std::vector<double> expected = bert_.mean_state(of_ids[row]);
      for (size_t i = 0; i < expected.size(); ++i) {
        EXPECT_NEAR(found[row * BertFolder::kHidden + i], expected[i], 1e-5) << row << ", " << i;
      }
    }
  }

  TemporaryDirectory folder_;
  const BertFolder bert_{kWords};
};

TEST_F(Encode, IdsToVectors) {
  const Outcome one = encode("--ids 4,5,6");
  ASSERT_EQ(one.code, 0) << one.text();
  expect_means({{4}});
  const std::string ids = file("ids.txt", "4, 5 6\n2\n5,5,5,5,4\r\n3 4");
  ASSERT_EQ(encode("--ids " + ids).code, 0);
  expect_means({{4}, {2}, {5}, {3}});
  const Outcome mean =
      encode("--pooling mean --batch-tokens 4 --mask sliding:1 --json --ids " + ids);
  ASSERT_EQ(mean.code, 0) << mean.text();
  expect_means({{4, 5, 6}, {2}, {5, 5, 5, 5, 4}, {3, 4}});
  const json summary = json::parse(mean.out);
  EXPECT_EQ(summary["sentences"].get<int>(), 4);
  EXPECT_EQ(summary["truncated"].get<int>(), 0);
  EXPECT_EQ(summary["mask"][0].get<std::string>(), "sliding:1");
  EXPECT_EQ(summary["dtype"].get<std::string>(), "float32");
  const json description = json::parse(read_file(path("x.npy.json")));
  EXPECT_EQ(description["pooling"].get<std::string>(), "mean");
  EXPECT_TRUE(description["normalized"].is_null());
  EXPECT_EQ(description["ids"], (json{"1", "2", "3", "4"}));
}

TEST_F(Encode, MasksComeBeforeTheModelToo) {
  const Outcome outcome =
      run_seqfuse("encode --mask sliding:1 --mask causal " + folder_.path().string() +
                  " --device cpu --ids 4,5 --json --output " + path("x.npy"));
  ASSERT_EQ(outcome.code, 0) << outcome.text();
  EXPECT_EQ(json::parse(outcome.out)["mask"], (json{"sliding:1", "causal"}));
  expect_means({{4}});
}

TEST_F(Encode, PathsNeedNotBeUtf8) {
  const std::string output = path("\xff.npy");
  const Outcome outcome = run_seqfuse("encode " + folder_.path().string() +
                                      " --device cpu --ids 4 --json --output '" + output + "'");
  ASSERT_EQ(outcome.code, 0) << outcome.text();
  EXPECT_TRUE(json::parse(outcome.out)["output"].get<std::string>().ends_with("\ufffd.npy"));
  EXPECT_TRUE(fs::exists(output));
}

TEST_F(Encode, AFolderInPlaceOfAFileIsRefusedFirst) {
  fs::create_directory(path("x.npy.json"));
  expect_refusal("--ids 4", 1, "x.npy.json is a folder; expected the name of a file");
}

TEST_F(Encode, WritesParquetToo) {
  const Outcome outcome = run_seqfuse("encode " + folder_.path().string() +
                                      " --device cpu --ids 4,5 --output " + path("x.parquet"));
  ASSERT_EQ(outcome.code, 0) << outcome.text();
  EXPECT_EQ(read_file(path("x.parquet")).substr(0, 4), "PAR1");
}

#ifdef SEQFUSE_HAS_TOKENIZER
TEST_F(Encode, TextToVectors) {
  const std::string text = file("text.txt", "Hello worlds\n\nworld");
  const Outcome outcome = encode("--pooling mean --text-file " + text);
  ASSERT_EQ(outcome.code, 0) << outcome.text();
  expect_means({{2, 4, 5, 6, 3}, {2, 3}, {2, 5, 3}});
  EXPECT_THAT(outcome.out, HasSubstr("3 sentences, 8 float32 each"));
}

TEST_F(Encode, LongSentencesLoseTheirEndsOrAreRefused) {
  const std::string text = file("text.txt", "hello hello world world\nhello\n");
  const Outcome outcome = encode("--pooling mean --max-length 4 --text-file " + text);
  ASSERT_EQ(outcome.code, 0) << outcome.text();
  EXPECT_THAT(outcome.out, HasSubstr("1 sentence was longer than 4 tokens and lost its end\n"));
  expect_means({{2, 4, 4, 3}, {2, 4, 3}});
  fs::remove(path("x.npy"));
  expect_refusal("--no-truncation --max-length 4 --text-file " + text, 1,
                 "text.txt, line 1: it has more than 4 tokens; shorten it, or leave out "
                 "--no-truncation");
}

TEST_F(Encode, WrongTextIsNamed) {
  expect_refusal("--text-file " + file("bad.txt", "hello\n\xff\n"), 1, "bad.txt, line 2: ");
  fs::remove(path("vocab.txt"));
  expect_refusal("--text-file " + file("text.txt", "hello\n"), 2, "has no tokenizer.json");
}
#endif

TEST_F(Encode, WrongInputIsNamed) {
  expect_refusal("--ids " + file("empty.txt", ""), 1,
                 "empty.txt is empty; expected one sentence a line");
  expect_refusal("--ids " + file("blank.txt", "4\n\n5\n"), 1,
                 "blank.txt, line 2: it has no tokens; expected one sentence a line");
  expect_refusal("--ids " + file("word.txt", "4 five\n"), 1, "word.txt, line 1: 'five' is no id");
  expect_refusal("--ids 4,7", 2, "--ids: there is no id 7; expected 0 to 6");
  expect_refusal("--ids " + file("large.txt", "4\n5 7\n"), 1,
                 "large.txt, line 2: there is no id 7; expected 0 to 6, the model's vocabulary");
  expect_refusal("--ids missing.txt", 1, "missing.txt");
  expect_refusal("--ids 4 --max-length 13", 2, "the model takes at most 12 tokens");
  expect_refusal("--ids 4 --mask slidin:3", 2, "there is no kind 'slidin'");
  expect_refusal("--ids 4 --dtype float16", 2, "expected float32 or float64 on a CPU");
  expect_refusal("", 2, "encode");
  const Outcome folder = run_seqfuse("encode " + folder_.path().string() +
                                     " --device cpu --ids 4 --output " + path("none/x.npy"));
  EXPECT_EQ(folder.code, 1);
  EXPECT_THAT(folder.err, HasSubstr("none/x.npy"));
  const Outcome ending =
      run_seqfuse("encode " + folder_.path().string() + " --ids 4 --output x.txt");
  EXPECT_EQ(ending.code, 2);
  EXPECT_THAT(ending.err, HasSubstr("must end in .parquet or .npy"));
}

TEST_F(Encode, HelpFitsAScreen) {
  const Outcome help = run_seqfuse("encode --help");
  EXPECT_EQ(help.code, 0);
  EXPECT_LE(std::count(help.out.begin(), help.out.end(), '\n'), 40);
  EXPECT_THAT(help.out, AllOf(HasSubstr("--text-file"), HasSubstr("bigbird:SIDE")));
}

}  // namespace
}  // namespace seqfuse::encode_cli_test
