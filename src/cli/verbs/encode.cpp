// seqfuse encode MODEL: sentences to vectors, by a BERT.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/progress.h"
#include "cli/command_line.h"
#include "cli/encoder_dtype.h"
#include "cli/model_text.h"
#include "cli/sentence_input.h"
#include "cli/verbs.h"
#include "data/export/vector_file.h"
#include "models/bert/plan.h"
#include "serving/encoding/sentence_encoder.h"
#include "training/device/device.h"
#include "training/loop/interrupt.h"

namespace seqfuse::cli {
namespace {

constexpr int64_t kSentencesAtOnce = 1 << 16;  // whose ids and vectors are in memory

struct EncodeFlags {
  std::string model, text_file, ids, pooling = "cls", output, device = "auto", dtype = "auto", plan;
  std::vector<std::string> masks{"none"};
  int64_t max_length = 0, batch_tokens = 16384;
  bool normalize = false, no_truncation = false, json = false;

  void add_to(CLI::App& app) {
    app.add_option("MODEL", model, "folder of a Hugging Face BERT")->required()->check(kPath);
    add_sentence_options(app, text_file, ids);
    app.add_option("--output", output, "FILE.npy or FILE.parquet")->required()->check(kPath);
    app.add_option("--pooling", pooling, "cls: the first token's state; mean: of all tokens")
        ->check(CLI::IsMember({"cls", "mean"}))
        ->capture_default_str();
    app.add_flag("--normalize", normalize, "vectors of length 1");
    app.add_option("--mask", masks,
                   "none, causal, sliding:SIDE, window:LEFT,RIGHT, dilated:SIDE,STEP,\n"
                   "global:TOKENS, longformer:SIDE,TOKENS, random:BLOCKS,SEED or\n"
                   "bigbird:SIDE,TOKENS,BLOCKS,SEED; given twice: what both allow")
        ->allow_extra_args(false)
        ->capture_default_str();
    app.add_option("--max-length", max_length, "tokens of a sentence (default: the model's)")
        ->check(whole_number(1));
    app.add_flag("--no-truncation", no_truncation,
                 "refuse longer sentences instead of cutting them");
    app.add_option("--batch-tokens", batch_tokens, "tokens that are computed together")
        ->check(whole_number(1))
        ->capture_default_str();
    app.add_option("--plan", plan, "a plan of `seqfuse tune`, for batches of its shape")
        ->check(kPath);
    app.add_option("--dtype", dtype,
                   "float32 or float64 (CPU), float16 or bfloat16 (GPU); auto: the first,\n"
                   "on a GPU bfloat16 if the file is")
        ->check(CLI::IsMember({"auto", "float32", "float64", "float16", "bfloat16"}))
        ->capture_default_str();
    add_device_option(app, device);
    app.add_flag("--json", json, "print a summary as JSON");
  }
};

SentenceLimits limits_of(const EncodeFlags& flags, const models::bert::Config& config) {
  const int64_t most = config.max_position_embeddings;
  SEQFUSE_CHECK_AS(UsageError, flags.max_length <= most,
                   "--max-length is {}; the model takes at most {} tokens", flags.max_length, most);
  return {.most_tokens = flags.max_length > 0 ? flags.max_length : most,
          .truncate = !flags.no_truncation};
}

// The plan's program for the model. The mask must be the plan's.
std::optional<models::bert::PlannedProgram> planned_program(const EncodeFlags& flags,
                                                            const models::bert::Model& model) {
  if (flags.plan.empty()) return std::nullopt;
  const models::bert::Plan plan = models::bert::load_plan(flags.plan);
  try {
    models::bert::PlannedProgram program(plan, model);
    const std::string mask = fmt::format("{}", fmt::join(flags.masks, "+"));
    SEQFUSE_CHECK_AS(UsageError, mask == plan.mask, "the plan is for the mask {}, and --mask is {}",
                     plan.mask, mask);
    return program;
  } catch (const UsageError& error) {
    throw_error<UsageError>("--plan {}: {}", flags.plan, error.what());
  }
}

struct Interrupted {};

// Writes the vectors of all sentences. Throws Interrupted.
void encode_all(const serving::SentenceEncoder& encoder, SentenceInput& input,
                const SentenceLimits& limits, const std::string& output,
                const data::VectorFileInfo& info, const training::InterruptGuard& interrupt) {
  Progress progress("encode", "sentences", info.count);
  data::write_vectors(output, info, [&](const data::AddVectors& add) {
    for (int64_t begin = 0; begin < info.count; begin += kSentencesAtOnce) {
      const int64_t end = std::min(begin + kSentencesAtOnce, info.count);
      const auto vectors =
          encoder.encode(input.ids(begin, end, limits), begin + 1, [&](int64_t done) {
            progress.update(begin + done);
            return interrupt.signal() == 0;
          });
      if (!vectors) throw Interrupted();
      std::vector<std::string> names;
      for (int64_t i = begin; i < end; ++i) names.push_back(std::to_string(i + 1));
      add({.ids = names,
           .titles = {},
           .values = {vectors->const_data_ptr<float>(), static_cast<size_t>(vectors->numel())}});
    }
  });
}

}  // namespace

int cmd_encode(int argc, char** argv) {
  EncodeFlags flags;
  CLI::App app("Vectors of sentences by a BERT encoder, a row for each line.", "encode");
  flags.add_to(app);
  if (const auto done = parse_arguments(app, argc, argv)) return *done;

  data::vector_format(flags.output);  // refused before the model is loaded
  const auto mask = models::bert::SequenceMask::parse(flags.masks);
  const auto config = models::bert::load_config(flags.model);
  const SentenceLimits limits = limits_of(flags, config);
  std::optional<TextAccess> access;
  if (flags.ids.empty()) access = open_text(flags.model, config.vocab_size);
  SentenceInput input =
      access ? SentenceInput::of_text_file(flags.text_file, needed_text(*access, "--text-file"))
             : SentenceInput::of_ids(flags.ids, config.vocab_size);

  const at::Device device = training::choose_device(flags.device, /*required_sm=*/"");
  const auto model = models::bert::Model::load(
      flags.model, encoder_dtype(flags.dtype, flags.model, device), device);
  const auto plan = planned_program(flags, model);
  const int64_t batch_tokens = plan ? plan->plan().batch * plan->plan().seq : flags.batch_tokens;
  const serving::SentenceEncoder encoder(
      model, mask,
      {.pooling = flags.pooling == "cls" ? serving::Pooling::cls : serving::Pooling::mean,
       .normalize = flags.normalize,
       .batch_tokens = batch_tokens,
       .plan = plan ? &*plan : nullptr});
  const data::VectorFileInfo info{.vectors = "sentences",
                                  .run = flags.model,
                                  .count = input.count(),
                                  .width = config.hidden_size,
                                  .pooling = flags.pooling,
                                  .normalized = flags.normalize};
  const training::InterruptGuard interrupt;
  const auto start = std::chrono::steady_clock::now();
  try {
    encode_all(encoder, input, limits, flags.output, info, interrupt);
  } catch (const Interrupted&) {
    log::warning("encode", "interrupted; {} is as it was", flags.output);
    return 128 + interrupt.signal();
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  if (flags.json) {
    const nlohmann::json summary = {{"sentences", info.count},
                                    {"width", info.width},
                                    {"truncated", input.truncated()},
                                    {"max_length", limits.most_tokens},
                                    {"pooling", flags.pooling},
                                    {"normalized", flags.normalize},
                                    {"mask", flags.masks},
                                    {"dtype", c10::getDtypeNames(model.dtype()).first},
                                    {"device", device.str()},
                                    {"planned_batches", encoder.planned_batches()},
                                    {"batches", encoder.batches()},
                                    {"seconds", seconds.count()},
                                    {"output", flags.output}};
    fmt::print("{}\n", summary.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    return 0;
  }
  fmt::print("{}: {} sentence{}, {} float32 each{}, in {}\n", flags.output, info.count,
             info.count == 1 ? "" : "s", info.width, flags.normalize ? ", L2-normalised" : "",
             format_duration(seconds.count()));
  if (plan)
    fmt::print("{} of {} batches by the plan\n", encoder.planned_batches(), encoder.batches());
  if (const int64_t cut = input.truncated(); cut > 0) {
    fmt::print("{} longer than {} tokens and lost {}\n",
               cut == 1 ? "1 sentence was" : fmt::format("{} sentences were", cut),
               limits.most_tokens, cut == 1 ? "its end" : "their ends");
  }
  return 0;
}

}  // namespace seqfuse::cli

extern "C" int seqfuse_cmd_encode(int argc, char** argv) {
  return seqfuse::cli::cmd_encode(argc, argv);
}
