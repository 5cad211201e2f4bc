#include <fmt/format.h>
#include <fmt/ranges.h>

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/names.h"
#include "cli/command_line.h"
#include "cli/verbs.h"
#include "masks/block_mask.h"
#include "masks/drawing.h"
#include "masks/drawing_png.h"

namespace seqfuse::cli {
namespace {

constexpr int64_t kMost = 1 << 20;  // queries and keys of a drawing

struct MaskFlags {
  std::vector<std::string> kinds;
  int64_t queries = 0, keys = 0;  // keys 0: as many as queries
  int64_t side = 64, step = 4, global = 64, random = 3, sequence = 0;
  uint64_t seed = 1;
  std::vector<int64_t> lengths, documents;
  std::string output = "mask.svg";
  bool json = false;

  void add_to(CLI::App& app) {
    app.add_option("action", action_, "show")->required()->check(CLI::IsMember({"show"}));
    app.add_option("--kind", kinds,
                   "full, causal, sliding, dilated, global, longformer,\nrandom, bigbird, padding, "
                   "documents; several, by commas:\nwhat all of them allow")
        ->required()
        ->delimiter(',')
        ->allow_extra_args(false);
    app.add_option("--seq", queries, "number of queries")
        ->required()
        ->check(CLI::Range(int64_t{1}, kMost));
    app.add_option("--keys", keys, "default: as many as queries")
        ->check(CLI::Range(int64_t{1}, kMost));
    app.add_option("--side", side, "tokens of a window on each side of its query")
        ->check(whole_number(0))
        ->capture_default_str();
    app.add_option("--step", step, "dilated: every step-th key")
        ->check(whole_number(1))
        ->capture_default_str();
    app.add_option("--global", global, "tokens that see all and are seen by all")
        ->check(whole_number(0))
        ->capture_default_str();
    app.add_option("--random", random, "random blocks that a block of queries sees")
        ->check(whole_number(0))
        ->capture_default_str();
    app.add_option("--seed", seed, "of the random blocks")
        ->check(whole_number(0))
        ->capture_default_str();
    app.add_option("--lengths", lengths, "padding: tokens of each sequence, by commas")
        ->delimiter(',')
        ->allow_extra_args(false);
    app.add_option("--documents", documents, "tokens of each document, by commas")
        ->delimiter(',')
        ->allow_extra_args(false);
    app.add_option("--sequence", sequence, "which of the --lengths is drawn")
        ->check(whole_number(0))
        ->capture_default_str();
    app.add_option("--output", output, "the drawing: an SVG file, or a PNG file if it ends in .png")
        ->check(kPath)
        ->capture_default_str();
    app.add_flag("--json", json, "print the numbers as JSON");
  }

  masks::Mask mask() const {
    std::optional<masks::Mask> all;
    for (const std::string& kind : kinds) all = all ? *all & one(kind) : one(kind);
    return *all;
  }

 private:
  masks::Mask one(const std::string& kind) const {
    const int64_t k = keys > 0 ? keys : queries;
    const std::map<std::string, std::function<masks::Mask()>> makers{
        {"full", [&] { return masks::full(queries, k); }},
        {"causal", [&] { return masks::causal(queries, k); }},
        {"sliding", [&] { return masks::window(queries, k, side, side); }},
        {"dilated", [&] { return masks::dilated(queries, k, side, side, step); }},
        {"global", [&] { return masks::global(queries, k, global); }},
        {"longformer", [&] { return masks::longformer(queries, k, side, global); }},
        {"random", [&] { return masks::random_blocks(queries, k, random, masks::kBlock, seed); }},
        {"bigbird", [&] { return masks::bigbird(queries, k, side, global, random, seed); }},
        {"padding",
         [&] {
           SEQFUSE_CHECK_AS(UsageError, !lengths.empty(),
                            "mask: --kind padding needs --lengths, such as --lengths {},{}",
                            queries, queries / 2);
           return masks::lengths(queries, k, lengths, lengths);
         }},
        {"documents",
         [&] {
           SEQFUSE_CHECK_AS(UsageError, !documents.empty(),
                            "mask: --kind documents needs --documents, such as --documents {},{}",
                            queries / 2, queries / 4);
           return masks::documents(queries, k, {documents});
         }},
    };
    const auto maker = makers.find(kind);
    if (maker != makers.end()) return maker->second();
    std::vector<std::string> names;
    for (const auto& [name, make] : makers) names.push_back(name);
    throw_error<UsageError>("mask: unknown kind '{}'{}\n  `seqfuse mask --help` lists the kinds",
                            kind, did_you_mean(kind, names));
  }

  std::string action_;
};

}  // namespace

int cmd_mask(int argc, char** argv) {
  MaskFlags flags;
  CLI::App app("Draws a mask of attention and counts its blocks of 64 x 64: mask show", "mask");
  flags.add_to(app);
  if (const auto done = parse_arguments(app, argc, argv)) return *done;

  const masks::BlockMask mask(flags.mask(), 1);  // as it looks, whatever order kernels take it in
  SEQFUSE_CHECK_AS(UsageError, flags.sequence < mask.batch,
                   "mask: --sequence is {}; expected 0 to {}", flags.sequence, mask.batch - 1);
  const masks::MaskCounts counts = mask.counts();
  const int64_t visited = counts.full + counts.partial;
  const std::string summary = fmt::format(
      "density {:.2f} %; {} of {} blocks visited, {} full and {} partial; {:.1f} % of what they "
      "hold is allowed",
      100 * counts.density(), visited, counts.blocks, counts.full, counts.partial,
      100 * counts.efficiency());
  const std::string caption = fmt::format("{}: {}", fmt::join(flags.kinds, ", "), summary);
  write_file_atomically(flags.output, flags.output.ends_with(".png")
                                          ? masks::draw_png(mask, flags.sequence)
                                          : masks::draw_svg(mask, flags.sequence, caption));
  if (flags.json) {
    const nlohmann::json report = {{"kind", flags.kinds},       {"sequences", mask.batch},
                                   {"queries", mask.queries},   {"keys", mask.keys},
                                   {"allowed", counts.allowed}, {"density", counts.density()},
                                   {"blocks", counts.blocks},   {"full", counts.full},
                                   {"partial", counts.partial}, {"efficiency", counts.efficiency()},
                                   {"output", flags.output}};
    fmt::print("{}\n", report.dump(1, ' ', false, nlohmann::json::error_handler_t::replace));
  } else {
    fmt::print("{} x {}, {} sequence{}: {}\n{}\n", mask.queries, mask.keys, mask.batch,
               mask.batch == 1 ? "" : "s", summary, flags.output);
  }
  return 0;
}

}  // namespace seqfuse::cli
