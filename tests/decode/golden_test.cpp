// A trained model against golden numbers, if available: SEQFUSE_GPT_NEOX names a directory with a
// checkpoint, golden.json, and the *.i32 files of ids that golden.json refers to:
//   "NAME/start4_recent252_shiftTrue": {"ppl", "mean_nll", "tokens"}, ...; "greedy_from_64": [ids].
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/cuda.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>

#include "base/file.h"
#include "serving/decoding/generate.h"
#include "serving/decoding/perplexity.h"
#include "tests/decode/tiny_model.h"

#ifdef SEQFUSE_HAS_TOKENIZER
#include "text/tokenizer.h"
#endif

namespace seqfuse::golden_test {
namespace {

namespace fs = std::filesystem;
using kv_cache::Rule;
using models::gpt_neox::Model;
using serving::Session;

class Golden : public testing::Test {
 protected:
  void SetUp() override {
    const char* folder = std::getenv("SEQFUSE_GPT_NEOX");
    if (folder == nullptr) GTEST_SKIP() << "SEQFUSE_GPT_NEOX is not set: no model to test with";
    folder_ = folder;
    golden_ = nlohmann::json::parse(read_file(folder_ / "golden.json"));
  }

  std::vector<int64_t> ids(const std::string& name) const {
    const std::string content = read_file(folder_ / (name + ".i32"));
    std::vector<int32_t> ids(content.size() / 4);
    std::memcpy(ids.data(), content.data(), content.size());
    return {ids.begin(), ids.end()};
  }

  // For each text and rule in golden.json whose name ends in `ending`.
  void for_each_rule(const std::string& ending,
                     const std::function<void(const std::string&, const Rule&,
                                              const nlohmann::json&)>& check) const {
    int found = 0;
    for (const auto& [key, value] : golden_.items()) {
      int start = 0, recent = 0;
      const size_t slash = key.find('/');
      if (slash == std::string::npos || !key.ends_with(ending)) continue;
      if (std::sscanf(key.c_str() + slash, "/start%d_recent%d_", &start, &recent) != 2) continue;
      check(key.substr(0, slash), Rule::streaming(start, recent), value);
      ++found;
    }
    EXPECT_GT(found, 0) << ending;
  }

  fs::path folder_;
  nlohmann::json golden_;
};

double perplexity(const std::vector<double>& losses) {
  return std::exp(std::accumulate(losses.begin(), losses.end(), 0.0) /
                  static_cast<double>(losses.size()));
}

TEST_F(Golden, PerplexityUnderCacheRules) {
  const Model model = Model::load(folder_, at::kFloat, at::kCPU);
  for_each_rule("shiftTrue", [&](const std::string& text, const Rule& rule, const auto& golden) {
    for (const int64_t tokens_per_pass : {1, 256}) {
      Session session(model, rule, 1);
      const auto losses = serving::token_losses(session, ids(text), tokens_per_pass);
      EXPECT_EQ(losses.size(), golden["tokens"]);
      const double expected = golden["ppl"];
      EXPECT_NEAR(perplexity(losses), expected, 1e-6 * expected)
          << text << ", " << rule.text() << ", tokens a pass: " << tokens_per_pass;
      const std::vector<double> first = golden["first8"], last = golden["last8"];
      for (size_t i = 0; i < 8; ++i) {
        EXPECT_NEAR(losses[i], first[i], 1e-4);
        EXPECT_NEAR(losses[losses.size() - 8 + i], last[i], 1e-4);
      }
    }
  });
}

// Control: wrong positions raise the perplexity.
TEST_F(Golden, WrongPositionsAreWorse) {
  const Model model = Model::load(folder_, at::kFloat, at::kCPU);
  for_each_rule("shiftFalse", [&](const std::string& text, Rule rule, const auto& golden) {
    Session right(model, rule, 1);
    const double expected = perplexity(serving::token_losses(right, ids(text), 256));
    rule.true_distances = true;
    Session wrong(model, rule, 1);
    const double control = perplexity(serving::token_losses(wrong, ids(text), 256));
    EXPECT_GT(control, 1.15 * expected) << text;
    EXPECT_NEAR(control, golden["ppl"].template get<double>(), 1e-6 * control) << text;
  });
}

TEST_F(Golden, GreedyTokens) {
  const Model model = Model::load(folder_, at::kFloat, at::kCPU);
  const std::vector<int64_t> expected = golden_["greedy_from_64"];
  auto prompt = ids("shakespeare_heldout");
  prompt.resize(64);
  Session session(model, Rule::full(128), 1);
  const auto count = static_cast<int64_t>(expected.size());
  EXPECT_EQ(serving::generate(session, {prompt}, {.max_new_tokens = count})[0].ids, expected);
}

// The same by the kernels of a GPU: perplexities within .1 % in float16, and the tokens.
TEST_F(Golden, OnAGpuCuda) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU on this machine";
  const Model model = Model::load(folder_, at::kHalf, at::Device(at::kCUDA, 0));
  for_each_rule("shiftTrue", [&](const std::string& text, const Rule& rule, const auto& golden) {
    Session session(model, rule, 1);
    EXPECT_TRUE(session.picks_on_device());
    const double expected = golden["ppl"];
    EXPECT_NEAR(perplexity(serving::token_losses(session, ids(text))), expected, 1e-3 * expected)
        << text << ", " << rule.text();
  });
  const std::vector<int64_t> expected = golden_["greedy_from_64"];
  auto prompt = ids("shakespeare_heldout");
  prompt.resize(64);
  // Beside a text of another length and one that ends early: a text depends on itself alone.
  Session session(model, Rule::full(128), 3);
  const auto count = static_cast<int64_t>(expected.size());
  const auto results = serving::generate(session, {{5}, prompt, {expected.begin(), expected.end()}},
                                         {.max_new_tokens = count});
  EXPECT_EQ(results[1].ids, expected);
}

#ifdef SEQFUSE_HAS_TOKENIZER
// tokenizer.json gives the ids of the text that was tokenized whole. (Ids that were cut out of a longer
// text may come back in other pieces.)
TEST_F(Golden, TextOfTheIds) {
  const auto tokenizer = text::Tokenizer::load(folder_ / "tokenizer.json");
  EXPECT_LT(tokenizer.largest_id(), models::gpt_neox::load_config(folder_).vocab_size);
  const auto expected = ids("wikitext2_test");
  const std::vector<int32_t> given(expected.begin(), expected.end());
  EXPECT_EQ(tokenizer.encode(tokenizer.decode(given, /*skip_special_tokens=*/false)), given);
}
#endif

}  // namespace
}  // namespace seqfuse::golden_test
