// seqfuse perplexity MODEL: how well a model predicts a text, on the code path of generation.
#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/log.h"
#include "base/progress.h"
#include "cli/command_line.h"
#include "cli/decoding_model.h"
#include "cli/ids_file.h"
#include "cli/model_text.h"
#include "cli/verbs.h"
#include "serving/decoding/perplexity.h"
#include "training/loop/interrupt.h"

namespace seqfuse::cli {
namespace {

void write_losses(const std::string& file, const std::vector<double>& losses) {
  std::string text;
  for (const double loss : losses) text += fmt::format("{:.17g}\n", loss);
  write_file_atomically(file, text);
}

void check_fits(const DecodingFlags& flags, const models::gpt_neox::Config& config,
                int64_t tokens) {
  const int64_t size = full_cache_size(flags, config);
  SEQFUSE_CHECK_AS(UsageError, flags.cache != "full" || tokens <= size,
                   "the text has {} tokens, the full cache holds {}: --cache-size {} makes room, "
                   "--cache streaming takes texts of any length",
                   tokens, size, tokens);
}

std::vector<int64_t> read_tokens(const DecodingFlags& flags, const models::gpt_neox::Config& config,
                                 const std::string& text_file, const std::string& ids_file) {
  if (text_file.empty()) return read_ids(ids_file);
  const TextAccess access = open_text(flags.model, config.vocab_size);
  return needed_text(access, "--text-file").encode(read_file(text_file), text_file);
}

void print_perplexity(const std::vector<double>& losses, const kv_cache::Rule& rule,
                      bool interrupted, bool as_json) {
  const auto count = static_cast<double>(losses.size());
  const double mean = std::accumulate(losses.begin(), losses.end(), 0.0) / count;
  if (as_json) {  // without a token both are NaN, which JSON writes as null
    const nlohmann::json result = {{"perplexity", std::exp(mean)},
                                   {"mean_nll", mean},
                                   {"tokens", losses.size()},
                                   {"interrupted", interrupted},
                                   {"cache", rule.text()}};
    fmt::print("{}\n", result.dump());
  } else if (losses.empty()) {
    fmt::print("interrupted before the first token: there is no perplexity\n");
  } else {
    fmt::print("perplexity {:.6g} (mean loss {:.6g} over {} tokens{}; cache: {})\n", std::exp(mean),
               mean, losses.size(), interrupted ? ", interrupted" : "", rule.text());
  }
}

}  // namespace

int cmd_perplexity(int argc, char** argv) {
  DecodingFlags flags;
  std::string text_file, ids_file, losses_file, positions = "cache";
  int64_t tokens_per_pass = 1;
  bool json = false;
  CLI::App app(
      "Perplexity of a text under a GPT-NeoX language model, on the code path of generation.",
      "perplexity");
  flags.add_to(app);
  auto* source = app.add_option_group("text", "one of these")->require_option(1);
  source->add_option("--text-file", text_file, "a file of text")->check(kPath);
  source->add_option("--ids-file", ids_file, "tokens: raw little-endian int32, or text")
      ->check(kPath);
  app.add_option("--tokens-per-pass", tokens_per_pass, "1: as decoding does; more are faster")
      ->check(whole_number(1))
      ->capture_default_str();
  app.add_option("--positions", positions, "cache, or text: the wrong rule, for comparison")
      ->check(CLI::IsMember({"cache", "text"}))
      ->capture_default_str();
  app.add_option("--losses", losses_file, "write each token's loss to this file, one per line")
      ->check(kPath);
  app.add_flag("--json", json, "print JSON");
  if (const auto done = parse_arguments(app, argc, argv)) return *done;

  const auto config = models::gpt_neox::load_config(flags.model);
  const std::vector<int64_t> ids = read_tokens(flags, config, text_file, ids_file);
  const auto tokens = static_cast<int64_t>(ids.size()) - 1;
  check_fits(flags, config, tokens);
  kv_cache::Rule rule = cache_rule(flags, config, std::max<int64_t>(tokens, 1));
  rule.true_distances = positions == "text";
  const auto model = open_model(flags, "perplexity", config, rule, 1);

  serving::Session session(model, rule, 1);
  const training::InterruptGuard interrupt;
  std::vector<double> losses;
  {
    Progress progress("perplexity", "tokens", tokens);
    losses = serving::token_losses(session, ids, tokens_per_pass, [&](int64_t done) {
      progress.update(done);
      return interrupt.signal() == 0;
    });
  }
  if (!losses_file.empty()) write_losses(losses_file, losses);
  print_perplexity(losses, rule, static_cast<int64_t>(losses.size()) < tokens, json);
  return interrupt.signal() == 0 ? 0 : 128 + interrupt.signal();
}

}  // namespace seqfuse::cli

extern "C" int seqfuse_cmd_perplexity(int argc, char** argv) {
  return seqfuse::cli::cmd_perplexity(argc, argv);
}
