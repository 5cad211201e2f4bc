// seqfuse bench sparsity MODEL: how much of a BERT's attention is near 0, by layer and head.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/progress.h"
#include "cli/command_line.h"
#include "cli/model_text.h"
#include "cli/sentence_input.h"
#include "cli/verbs.h"
#include "report/heat_map.h"
#include "serving/encoding/attention_sparsity.h"
#include "training/device/device.h"
#include "training/loop/interrupt.h"

namespace seqfuse::cli {
namespace {

using nlohmann::json;
using serving::AttentionSparsity;

struct SparsityFlags {
  std::string model, text_file, ids, output, device = "auto";
  std::vector<std::string> masks{"none"};
  std::vector<double> thresholds{1e-2, 1e-3, 1e-4, 1e-5, 1e-6};
  int64_t max_length = 0, sentences = 100;
  bool json = false;

  void add_to(CLI::App& app) {
    app.add_option("MODEL", model, "folder of a Hugging Face BERT")->required()->check(kPath);
    add_sentence_options(app, text_file, ids);
    app.add_option("--sentences", sentences, "the first so many")
        ->check(whole_number(1))
        ->capture_default_str();
    app.add_option("--max-length", max_length,
                   "tokens of a sentence, longer ones are cut (default: the\nmodel's)")
        ->check(whole_number(1));
    app.add_option("--mask", masks, "as for `seqfuse encode`; given twice: what both allow")
        ->allow_extra_args(false)
        ->capture_default_str();
    app.add_option("--thresholds", thresholds, "of probabilities, by commas")
        ->delimiter(',')
        ->allow_extra_args(false)
        ->check(CLI::Range(0.0, 1.0))
        ->capture_default_str();
    app.add_option("--output", output, "SVG file: a heat map of layers and heads")->check(kPath);
    add_device_option(app, device);
    app.add_flag("--json", json, "print JSON with every head instead of a table");
  }
};

std::vector<std::vector<int64_t>> sentences_of(const SparsityFlags& flags,
                                               const models::bert::Config& config) {
  const int64_t most = config.max_position_embeddings;
  SEQFUSE_CHECK_AS(UsageError, flags.max_length <= most,
                   "--max-length is {}; the model takes at most {} tokens", flags.max_length, most);
  std::optional<TextAccess> access;
  if (flags.ids.empty()) access = open_text(flags.model, config.vocab_size);
  SentenceInput input =
      access ? SentenceInput::of_text_file(flags.text_file, needed_text(*access, "--text-file"))
             : SentenceInput::of_ids(flags.ids, config.vocab_size);
  return input.ids(0, std::min(input.count(), flags.sentences),
                   {.most_tokens = flags.max_length > 0 ? flags.max_length : most});
}

report::HeatMap heat_map(const AttentionSparsity& sparsity, const std::string& model) {
  report::HeatMap map{.title = fmt::format("Attention below a threshold, % of pairs: {}, {} tokens",
                                           model, sparsity.tokens),
                      .row_label = "layer",
                      .column_label = "head",
                      .rows = static_cast<size_t>(sparsity.layers),
                      .columns = static_cast<size_t>(sparsity.heads),
                      .panels = {}};
  const size_t cells = map.rows * map.columns;
  for (size_t t = 0; t < sparsity.thresholds.size(); ++t) {
    const auto begin = sparsity.share.begin() + static_cast<std::ptrdiff_t>(t * cells);
    map.panels.push_back({fmt::format("below {:g}", sparsity.thresholds[t]),
                          {begin, begin + static_cast<std::ptrdiff_t>(cells)}});
  }
  return map;
}

void print_sparsity(const AttentionSparsity& sparsity) {
  fmt::print("{} sentences, {} tokens, {} pairs in each of {} heads of {} layers\n",
             sparsity.sentences, sparsity.tokens, sparsity.pairs, sparsity.heads, sparsity.layers);
  fmt::print("share of pairs below a threshold; in brackets the probability that they hold\n{:>6}",
             "layer");
  for (const double threshold : sparsity.thresholds)
    fmt::print(" {:>19}", fmt::format("{:g}", threshold));
  fmt::print("\n");
  for (int64_t layer = 0; layer < sparsity.layers; ++layer) {
    fmt::print("{:>6}", layer);
    for (size_t t = 0; t < sparsity.thresholds.size(); ++t) {
      fmt::print(" {:>19}", fmt::format("{:.1f} % ({:.2g} %)",
                                        100 * sparsity.of_layer(sparsity.share, t, layer),
                                        100 * sparsity.of_layer(sparsity.mass, t, layer)));
    }
    fmt::print("\n");
  }
}

json by_head(const AttentionSparsity& sparsity, const std::vector<double>& values,
             size_t threshold) {
  json layers = json::array();
  for (int64_t layer = 0; layer < sparsity.layers; ++layer) {
    json heads = json::array();
    for (int64_t head = 0; head < sparsity.heads; ++head)
      heads.push_back(sparsity.of(values, threshold, layer, head));
    layers.push_back(std::move(heads));
  }
  return layers;
}

json sparsity_json(const AttentionSparsity& sparsity, const SparsityFlags& flags,
                   const models::bert::Model& model) {
  json thresholds = json::array();
  for (size_t t = 0; t < sparsity.thresholds.size(); ++t) {
    thresholds.push_back({{"threshold", sparsity.thresholds[t]},
                          {"share", by_head(sparsity, sparsity.share, t)},
                          {"mass", by_head(sparsity, sparsity.mass, t)}});
  }
  return {{"model", flags.model},
          {"device", model.device().str()},
          {"dtype", c10::getDtypeNames(model.dtype()).first},
          {"mask", flags.masks},
          {"layers", sparsity.layers},
          {"heads", sparsity.heads},
          {"sentences", sparsity.sentences},
          {"tokens", sparsity.tokens},
          {"pairs", sparsity.pairs},
          {"thresholds", std::move(thresholds)}};
}

}  // namespace

int bench_sparsity(int argc, char** argv) {
  SparsityFlags flags;
  CLI::App app(
      "For a BERT's weights and sentences: the share of attention probabilities below thresholds,\n"
      "by layer and head, and the probability that these pairs hold together.",
      "bench sparsity");
  flags.add_to(app);
  if (const auto done = parse_arguments(app, argc, argv)) return *done;

  const auto mask = models::bert::SequenceMask::parse(flags.masks);
  const auto config = models::bert::load_config(flags.model);
  const auto sentences = sentences_of(flags, config);
  const at::Device device = training::choose_device(flags.device, /*required_sm=*/"");
  const auto model = models::bert::Model::load(
      flags.model, models::bert::default_dtype(flags.model, device), device);
  const training::InterruptGuard interrupt;
  std::optional<AttentionSparsity> sparsity;
  {
    Progress progress("bench", "sentences", static_cast<int64_t>(sentences.size()));
    sparsity =
        serving::attention_sparsity(model, mask, sentences, flags.thresholds, [&](int64_t done) {
          progress.update(done);
          return interrupt.signal() == 0;
        });
  }
  if (!sparsity) return 128 + interrupt.signal();
  if (!flags.output.empty())
    write_file_atomically(flags.output, report::to_svg(heat_map(*sparsity, flags.model)));
  if (flags.json) {
    fmt::print(
        "{}\n",
        sparsity_json(*sparsity, flags, model).dump(1, ' ', false, json::error_handler_t::replace));
    return 0;
  }
  print_sparsity(*sparsity);
  if (!flags.output.empty()) fmt::print("{}\n", flags.output);
  return 0;
}

}  // namespace seqfuse::cli
