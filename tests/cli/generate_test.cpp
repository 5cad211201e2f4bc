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
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/random.h"
#include "io/safetensors.h"
#include "tests/cli/background_process.h"
#include "tests/cli/seqfuse_process.h"

namespace seqfuse::generate_test {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

constexpr int64_t kVocab = 50, kHidden = 16, kInner = 32, kLayers = 2;

class GenerateVerb : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    directory_ = new TemporaryDirectory;
    std::ofstream(file("config.json"))
        << json{{"model_type", "gpt_neox"},      {"vocab_size", kVocab},
                {"hidden_size", kHidden},        {"intermediate_size", kInner},
                {"num_hidden_layers", kLayers},  {"num_attention_heads", 2},
                {"max_position_embeddings", 64}, {"rotary_pct", 0.5}};
    add("gpt_neox.embed_in.weight", {kVocab, kHidden});
    add("embed_out.weight", {kVocab, kHidden});
    add_pair("gpt_neox.final_layer_norm", {kHidden});
    for (int64_t layer = 0; layer < kLayers; ++layer) {
      const std::string name = "gpt_neox.layers." + std::to_string(layer) + ".";
      add_pair(name + "input_layernorm", {kHidden});
      add_pair(name + "post_attention_layernorm", {kHidden});
      add_pair(name + "attention.query_key_value", {3 * kHidden, kHidden});
      add_pair(name + "attention.dense", {kHidden, kHidden});
      add_pair(name + "mlp.dense_h_to_4h", {kInner, kHidden});
      add_pair(name + "mlp.dense_4h_to_h", {kHidden, kInner});
    }
    std::map<std::string, io::TensorView> views;
    for (const auto& [name, tensor] : tensors_) {
      views[name] = {"F32", tensor.shape, std::as_bytes(std::span(tensor.values))};
    }
    io::write_safetensors(file("model.safetensors"), views);
  }
  static void TearDownTestSuite() {
    delete directory_;
    tensors_.clear();
  }

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
      const auto id = static_cast<int32_t>((i * i + 3) % kVocab);
      out.write(reinterpret_cast<const char*>(&id), sizeof(id));
    }
    return file("ids.i32");
  }

 private:
  struct Values {
    std::vector<int64_t> shape;
    std::vector<float> values;
  };
  static void add(const std::string& name, const std::vector<int64_t>& shape) {
    Values& tensor = tensors_[name];
    tensor.shape = shape;
    int64_t count = 1;
    for (const int64_t size : shape) count *= size;
    for (int64_t i = 0; i < count; ++i) tensor.values.push_back(0.5F * float(random_.normal()));
  }
  static void add_pair(const std::string& name, const std::vector<int64_t>& shape) {
    add(name + ".weight", shape);
    add(name + ".bias", {shape[0]});
  }

  static inline TemporaryDirectory* directory_ = nullptr;
  static inline std::map<std::string, Values> tensors_;
  static inline Random random_{7};
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

TEST_F(GenerateVerb, RefusesWhatItCannotRead) {
  EXPECT_THAT(generate("").err, HasSubstr("generate"));
  EXPECT_EQ(generate("").code, 2);
  EXPECT_THAT(generate("--ids 5,x").err, HasSubstr("--ids has 'x'"));
  EXPECT_THAT(generate("--ids ''").err, HasSubstr("--ids is empty"));
  EXPECT_THAT(generate("--ids 50").err, HasSubstr("the id 50 is not in the model's vocabulary"));
  EXPECT_THAT(generate("--ids 5 --temperature -1").err, HasSubstr("the temperature is -1"));
  EXPECT_THAT(run_seqfuse("generate /nowhere --ids 5").err, HasSubstr("/nowhere is not a folder"));
}

TEST_F(GenerateVerb, HelpFitsAScreen) {
  for (const char* verb : {"generate", "perplexity"}) {
    const std::string help = run_seqfuse(std::string(verb) + " --help").out;
    EXPECT_LE(std::count(help.begin(), help.end(), '\n'), 45) << help;
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

TEST_F(GenerateVerb, PerplexityRefusesWhatItCannotRead) {
  EXPECT_THAT(perplexity("--ids-file " + ids_file(66)).err,
              HasSubstr("the text has 65 tokens, the full cache holds 64"));
  EXPECT_THAT(perplexity("--ids-file " + ids_file(1)).err, HasSubstr("at least 2 are needed"));
  std::ofstream(file("odd.i32")) << "abc";
  EXPECT_THAT(perplexity("--ids-file " + file("odd.i32")).err, HasSubstr("it has 3 bytes"));
  EXPECT_THAT(perplexity("--ids-file " + file("none.i32")).err, HasSubstr("none.i32"));
}

}  // namespace
}  // namespace seqfuse::generate_test
