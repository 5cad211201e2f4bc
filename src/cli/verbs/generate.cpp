// seqfuse generate MODEL: continues prompts.
#include <algorithm>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "cli/command_line.h"
#include "cli/decoding_model.h"
#include "cli/generate_output.h"
#include "cli/model_text.h"
#include "cli/verbs.h"
#include "serving/decoding/generate.h"
#include "training/loop/interrupt.h"

namespace seqfuse::cli {
namespace {

using Prompts = std::vector<std::vector<int64_t>>;

struct GenerateFlags {
  DecodingFlags decoding;
  std::vector<std::string> prompts, prompt_files, ids, stop;
  int64_t max_new_tokens = 128, batch_size = 16;
  serving::SamplingOptions sampling;
  bool ignore_eos = false, json = false;

  void add_to(CLI::App& app) {
    decoding.add_to(app);
    auto* source = app.add_option_group("prompt", "one of these")->require_option(1);
    source->add_option("--prompt", prompts, "text; repeatable")->allow_extra_args(false);
    source->add_option("--prompt-file", prompt_files, "a file of text, one prompt; repeatable")
        ->allow_extra_args(false)
        ->check(kPath);
    source->add_option("--ids", ids, "tokens, such as 5,34,63; repeatable")
        ->allow_extra_args(false);
    app.add_option("--max-new-tokens", max_new_tokens, "tokens to add")
        ->check(whole_number(1))
        ->capture_default_str();
    app.add_option("--stop", stop, "stop at this text; repeatable")->allow_extra_args(false);
    app.add_option("--temperature", sampling.temperature, "0: always the best token");
    app.add_option("--top-k", sampling.top_k, "draw from the k best tokens (temperature 1)");
    app.add_option("--top-p", sampling.top_p,
                   "draw from the fewest tokens that reach probability p (temperature 1)");
    app.add_option("--repetition-penalty", sampling.repetition_penalty, "1: none");
    app.add_option("--seed", sampling.seed, "of draws")->check(whole_number(0));
    app.add_option("--batch-size", batch_size, "prompts per batch")
        ->check(whole_number(1))
        ->capture_default_str();
    app.add_flag("--ignore-eos", ignore_eos, "continue past the model's end of text");
    app.add_flag("--json", json, "print one line of JSON per prompt");
  }
};

// Ids alone do without text: what is wrong with tokenizer.json is then a warning.
TextAccess access_text(const GenerateFlags& flags, const models::gpt_neox::Config& config) {
  const bool needed = !flags.prompts.empty() || !flags.prompt_files.empty() || !flags.stop.empty();
  try {
    return open_text(flags.decoding.model, config.vocab_size);
  } catch (const Error& error) {
    if (needed) throw;
    log::warning("generate", "{}; ids are printed without text", error.what());
    return {};
  }
}

// Before the weights are read, which takes a while.
void check_in_vocabulary(const Prompts& prompts, const models::gpt_neox::Config& config) {
  for (size_t i = 0; i < prompts.size(); ++i) {
    for (const int64_t id : prompts[i]) {
      SEQFUSE_CHECK_AS(DataError, id >= 0 && id < config.vocab_size,
                       "prompt {}: the id {} is not in the model's vocabulary of {}", i + 1, id,
                       config.vocab_size);
    }
  }
}

Prompts read_prompts(const GenerateFlags& flags, const TextAccess& access) {
  if (!flags.stop.empty()) needed_text(access, "--stop").follow(flags.stop);  // or says why not
  Prompts prompts;
  for (const std::string& text : flags.prompts) {
    prompts.push_back(needed_text(access, "--prompt").encode(text, "--prompt"));
  }
  for (const std::string& file : flags.prompt_files) {
    prompts.push_back(needed_text(access, "--prompt-file").encode(read_file(file), file));
  }
  for (const std::string& text : flags.ids) prompts.push_back(parse_ids(text));
  return prompts;
}

// The number of tokens of the longest text, prompt and continuation. Under the full rule the prompt
// must fit.
int64_t longest_text(const GenerateFlags& flags, const Prompts& prompts,
                     const models::gpt_neox::Config& config) {
  const int64_t size = full_cache_size(flags.decoding, config);
  size_t longest = 0;
  for (size_t i = 0; i < prompts.size(); ++i) {
    const auto length = static_cast<int64_t>(prompts[i].size());
    SEQFUSE_CHECK_AS(UsageError, flags.decoding.cache != "full" || length <= size,
                     "prompt {} has {} tokens, the full cache holds {}: --cache-size {} makes "
                     "room, --cache streaming takes prompts of any length",
                     i + 1, length, size, length + flags.max_new_tokens);
    longest = std::max(longest, prompts[i].size());
  }
  return static_cast<int64_t>(longest) + flags.max_new_tokens;
}

}  // namespace

int cmd_generate(int argc, char** argv) {
  GenerateFlags flags;
  CLI::App app("Continues prompts with a GPT-NeoX language model.", "generate");
  flags.add_to(app);
  if (const auto done = parse_arguments(app, argc, argv)) return *done;
  const bool limited = app.count("--top-k") + app.count("--top-p") > 0;
  if (limited && app.count("--temperature") == 0) flags.sampling.temperature = 1;
  flags.sampling.check();

  const auto config = models::gpt_neox::load_config(flags.decoding.model);
  const TextAccess access = access_text(flags, config);
  const Prompts prompts = read_prompts(flags, access);
  check_in_vocabulary(prompts, config);
  const kv_cache::Rule rule =
      cache_rule(flags.decoding, config, longest_text(flags, prompts, config));
  const auto rows = std::min<int64_t>(flags.batch_size, static_cast<int64_t>(prompts.size()));
  const auto model = open_model(flags.decoding, "generate", config, rule, rows);

  const OutputForm form{.json = flags.json,
                        .ids = !flags.ids.empty(),
                        .titles = prompts.size() > 1,
                        .text = access.text.get(),
                        .stops = flags.stop};
  const training::InterruptGuard interrupt;
  serving::GenerateOptions options{.max_new_tokens = flags.max_new_tokens,
                                   .sampling = flags.sampling,
                                   .interrupted = [&] { return interrupt.signal() != 0; }};
  if (!flags.ignore_eos) options.eos_ids = config.eos_ids;
  for (size_t begin = 0; begin < prompts.size() && interrupt.signal() == 0; begin += rows) {
    const size_t end = std::min(begin + rows, prompts.size());
    const Prompts batch(prompts.begin() + static_cast<ptrdiff_t>(begin),
                        prompts.begin() + static_cast<ptrdiff_t>(end));
    GenerateOutput output(form, batch, begin);
    options.on_token = [&](int64_t row, int64_t id) { return output.token(row, id); };
    options.on_end = [&](int64_t row, const serving::Generated& text) { output.end(row, text); };
    serving::Session session(model, rule, static_cast<int64_t>(batch.size()));
    serving::generate(session, batch, options, begin);
  }
  return interrupt.signal() == 0 ? 0 : 128 + interrupt.signal();
}

}  // namespace seqfuse::cli

extern "C" int seqfuse_cmd_generate(int argc, char** argv) {
  return seqfuse::cli::cmd_generate(argc, argv);
}
