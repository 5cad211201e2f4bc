// seqfuse bench decode MODEL|--shape NAME: how fast a model generates, beside the speed of memory. bench
// sparsity is in bench_sparsity.cpp.
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/parallel.h"
#include "cli/command_line.h"
#include "cli/decode_ladder.h"
#include "cli/decode_stream.h"
#include "cli/decoding_model.h"
#include "cli/verbs.h"
#include "serving/decoding/decode_speed.h"
#include "serving/decoding/random_model.h"
#include "training/loop/interrupt.h"

namespace seqfuse::cli {
namespace {

using nlohmann::json;

struct BenchFlags {
  std::string what;
  DecodingFlags decoding;
  std::vector<int64_t> lengths = {128, 1024}, batches = {1, 4};
  int64_t tokens = 32, stream = 0;
  std::string text_model, ids_file;
  bool eager = false, ladder = false, json = false;

  void add_to(CLI::App& app) {
    app.add_option("what", what, "decode; `seqfuse bench sparsity --help` has its own options")
        ->required()
        ->check(CLI::IsMember({"decode"}));
    decoding.add_to(app);
    app.get_option("MODEL")->required(false);
    app.remove_option(app.get_option("--cache-size"));  // as many as --cache-lengths need
    app.add_option("--shape", decoding.shape,
                   "instead of MODEL: random weights of pythia-160m, pythia-2.8b, ...");
    app.add_option("--cache-lengths", lengths, "tokens of a text before decoding")
        ->delimiter(',')
        ->allow_extra_args(false)
        ->check(whole_number(1))
        ->capture_default_str();
    app.add_option("--batch-sizes", batches, "texts that are decoded together")
        ->delimiter(',')
        ->allow_extra_args(false)
        ->check(whole_number(1))
        ->capture_default_str();
    app.add_option("--tokens", tokens, "timed tokens of a text")
        ->check(whole_number(1))
        ->capture_default_str();
    app.add_flag("--eager", eager, "GPU: PyTorch's operators one by one, without a CUDA graph");
    app.add_flag("--ladder", ladder,
                 "GPU: the parts of a step one by one, at one length and batch size");
    app.add_option("--text-model", text_model,
                   "--ladder: a small model, for the perplexity of --ids-file")
        ->check(kPath);
    app.add_option("--stream", stream,
                   "tokens of --ids-file to feed, repeated: are time, loss, memory flat?")
        ->check(whole_number(1));
    app.add_option("--ids-file", ids_file, "tokens: raw little-endian int32, or text")
        ->check(kPath);
    app.add_flag("--json", json, "print JSON instead of a table");
  }

  void check(const CLI::App& app) const {
    SEQFUSE_CHECK_AS(UsageError, decoding.model.empty() != decoding.shape.empty(),
                     "bench decode: give either the folder of a model or --shape");
    SEQFUSE_CHECK_AS(UsageError, !ladder || stream == 0,
                     "bench decode: --ladder and --stream are two measurements; give one");
    SEQFUSE_CHECK_AS(UsageError, !eager || (!ladder && stream == 0),
                     "bench decode: --eager is for neither --ladder, which has it as a row, nor "
                     "--stream");
    for (const char* flag : {"--cache-lengths", "--batch-sizes", "--tokens"}) {
      SEQFUSE_CHECK_AS(
          UsageError, stream == 0 || app.count(flag) == 0,
          "bench decode: --stream gives one text all its tokens one by one; leave out {}", flag);
    }
    for (const auto& [flag, values] :
         {std::pair{"--cache-lengths", &lengths}, std::pair{"--batch-sizes", &batches}}) {
      SEQFUSE_CHECK_AS(UsageError, !ladder || app.count(flag) == 0 || values->size() == 1,
                       "bench decode: --ladder measures at one length and batch size; got {} {}",
                       flag, fmt::join(*values, ","));
    }
    SEQFUSE_CHECK_AS(UsageError, ladder || text_model.empty(),
                     "bench decode: --text-model is for --ladder");
    SEQFUSE_CHECK_AS(UsageError, ladder || stream > 0 || ids_file.empty(),
                     "bench decode: --ids-file is for --ladder and --stream");
    SEQFUSE_CHECK_AS(UsageError, decoding.cache != "recompute",
                     "bench decode: --cache recompute keeps no cache, so there is no cache length");
  }

  serving::SpeedOptions options(int64_t length, int64_t batch) const {
    return {.batch = batch,
            .cache_length = length,
            .steps = tokens,
            .step = {.graph = !eager, .own_kernels = !eager}};
  }

  kv_cache::Rule rule(const models::gpt_neox::Config& config, int64_t length) const {
    const int64_t slots = serving::slots_of_measurement(options(length, 1));
    return decoding.cache == "full" ? kv_cache::Rule::full(slots)
                                    : cache_rule(decoding, config, slots);
  }
};

constexpr double kMilli = 1e3, kGiga = 1e9;

json to_json(const serving::DecodeSpeed& speed, int64_t length, int64_t batch) {
  return {{"batch", batch},
          {"cache_length", length},
          {"tpot_ms", speed.median_seconds() * kMilli},
          {"tpot_ms_fastest", speed.step_seconds.front() * kMilli},
          {"tpot_ms_slowest", speed.step_seconds.back() * kMilli},
          {"tokens_per_second", static_cast<double>(batch) / speed.median_seconds()},
          {"step_bytes", speed.step_bytes},
          {"bytes_per_second", speed.bytes_per_second()},
          {"copy_bytes_per_second", speed.copy_bytes_per_second},
          {"share_of_copy", speed.bytes_per_second() / speed.copy_bytes_per_second},
          {"launches", speed.launches ? json(*speed.launches) : json()},
          {"first_token_ms", speed.first_token_seconds * kMilli}};
}

void print_heading() {
  fmt::print("{:>6} {:>7} {:>9} {:>9} {:>8} {:>8} {:>7} {:>9} {:>12}\n", "batch", "cache",
             "TPOT ms", "tokens/s", "GB/s", "copy", "share", "launches", "1st token ms");
}

void print_row(const serving::DecodeSpeed& speed, int64_t length, int64_t batch) {
  fmt::print(
      "{:>6} {:>7} {:>9.4g} {:>9.4g} {:>8.4g} {:>8.4g} {:>5.0f} % {:>9} {:>12.4g}\n", batch, length,
      speed.median_seconds() * kMilli, static_cast<double>(batch) / speed.median_seconds(),
      speed.bytes_per_second() / kGiga, speed.copy_bytes_per_second / kGiga,
      100 * speed.bytes_per_second() / speed.copy_bytes_per_second,
      speed.launches ? std::to_string(*speed.launches) : "-", speed.first_token_seconds * kMilli);
  std::fflush(stdout);
}

}  // namespace

int cmd_bench(int argc, char** argv) {
  if (argc > 1 && std::string_view(argv[1]) == "sparsity")
    return bench_sparsity(argc - 1, argv + 1);
  BenchFlags flags;
  CLI::App app(
      "How fast a GPT-NeoX language model generates: time per output token (TPOT, the median),\n"
      "bytes read beside a copy of memory, launches per token, and the time to the first token.",
      "bench");
  flags.add_to(app);
  if (const auto done = parse_arguments(app, argc, argv)) return *done;
  flags.check(app);

  if (flags.ladder || flags.stream > 0) {
    const training::InterruptGuard interrupt;
    const auto interrupted = [&] { return interrupt.signal() != 0; };
    if (flags.ladder) {
      print_ladder(flags.decoding,
                   {.length = flags.lengths.front(),
                    .batch = flags.batches.front(),
                    .tokens = flags.tokens,
                    .text_model = flags.text_model,
                    .ids_file = flags.ids_file,
                    .json = flags.json},
                   interrupted);
    } else {
      print_stream(flags.decoding,
                   {.tokens = flags.stream, .ids_file = flags.ids_file, .json = flags.json},
                   interrupted);
    }
    return interrupt.signal() == 0 ? 0 : 128 + interrupt.signal();
  }

  const auto config = open_config(flags.decoding);
  const auto model = open_model(flags.decoding, "bench", config,
                                flags.rule(config, std::ranges::max(flags.lengths)),
                                std::ranges::max(flags.batches));
  const training::InterruptGuard interrupt;
  json results = json::array();
  if (!flags.json) print_heading();
  for (const int64_t length : flags.lengths) {
    for (const int64_t batch : flags.batches) {
      if (interrupt.signal() != 0) break;
      serving::SpeedOptions options = flags.options(length, batch);
      options.interrupted = [&] { return interrupt.signal() != 0; };
      const auto speed = serving::measure_decode(model, flags.rule(config, length), options);
      if (!speed) break;
      results.push_back(to_json(*speed, length, batch));
      if (!flags.json) print_row(*speed, length, batch);
    }
  }
  if (flags.json) {
    const json report = {
        {"model", flags.decoding.shape.empty() ? flags.decoding.model : flags.decoding.shape},
        {"device", model.device().str()},
        {"dtype", c10::toString(model.dtype())},
        {"weights", flags.decoding.weights},
        {"eager", flags.eager},
        {"threads", num_threads()},
        {"cache", flags.decoding.cache},
        {"tokens", flags.tokens},
        {"results", std::move(results)}};
    fmt::print("{}\n", report.dump(1));
  }
  return interrupt.signal() == 0 ? 0 : 128 + interrupt.signal();
}

}  // namespace seqfuse::cli

extern "C" int seqfuse_cmd_bench(int argc, char** argv) {
  return seqfuse::cli::cmd_bench(argc, argv);
}
