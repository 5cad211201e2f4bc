#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/command_line.h"
#include "cli/scheme_source.h"
#include "cli/verbs.h"
#include "fusion/legality.h"
#include "fusion/scheme_text.h"

namespace seqfuse::cli {
namespace {

using fusion::AddedCut;
using fusion::IllegalSegment;
using fusion::Legality;
using fusion::Mha;
using fusion::Scheme;
using fusion::Segment;
using nlohmann::json;

constexpr Segment kAttention{fusion::index_of(fusion::Op::qk),
                             fusion::index_of(fusion::Op::transpose)};

struct SchemeFlags {
  std::string scheme;
  std::vector<std::string> segments;
  std::vector<int64_t> shape{768, 12, 3072, 512};
  std::string dtype = "float16";
  bool mha = false, list = false, legal = false, draw = false, json = false, dump_source = false;

  void add_to(CLI::App& app) {
    auto* given = app.add_option("scheme", scheme, "0 to 65535, or 16 characters 0 or 1");
    auto* parts = app.add_option("--segments", segments,
                                 "the fused segments, as 1-2,3-4 or 1 2 3 4, or none");
    app.add_flag("--mha", mha, "with --segments: character 0 is 1")->needs(parts);
    auto* all = app.add_flag("--list", list,
                             "32768 to 49151: legal or not; equal legal forms, one program");
    app.add_flag("--legal", legal, "with --list: the legal ones only")->needs(all);
    auto* picture = app.add_flag("--draw", draw, "the operators, fused segments in brackets");
    app.add_flag("--json", json, "print JSON; with --list a line for each scheme")
        ->excludes(picture);
    auto* source = app.add_flag("--dump-source", dump_source,
                                "the CUDA source of the segments that are generated")
                       ->excludes(all)
                       ->excludes(picture);
    app.add_option("--shape", shape, "of the source; default 768,12,3072,512")
        ->option_text("HIDDEN,HEADS,INNER,SEQ")
        ->delimiter(',')
        ->expected(4)
        ->check(whole_number(1))
        ->needs(source);
    app.add_option("--dtype", dtype, "of the source: float16 (default) or bfloat16")
        ->option_text("TYPE")
        ->check(CLI::IsMember({"float16", "bfloat16"}))
        ->needs(source);
    parts->excludes(given);
    all->excludes(given)->excludes(parts)->excludes(picture);
  }
};

const char* name_of(int op) {
  return fusion::kGraph[static_cast<size_t>(op)].name;
}

// "[QK mask] (GEMM epilogue)", or the name of an operator alone.
std::string described(const Segment& segment, Mha mha) {
  if (!segment.fused()) return name_of(segment.first);
  std::string names;
  for (int op = segment.first; op <= segment.last; ++op)
    names += (names.empty() ? "" : " ") + std::string(name_of(op));
  return fmt::format("[{}] ({})", names, fusion::template_of(segment, mha)->name);
}

bool first_character_has_no_effect(const Scheme& legal) {
  return legal.mha() == Mha::written_by_hand && !legal.has(kAttention);
}

// On standard error, so that standard output is the scheme alone.
void report(const Legality& legality, bool draw) {
  const Mha mha = legality.legal.mha();
  for (const IllegalSegment& illegal : legality.illegal) {
    fmt::print(stderr, "illegal: segment {}-{}: {}\n", illegal.segment.first + 1,
               illegal.segment.last + 1, illegal.why);
    for (const AddedCut& cut : illegal.cuts) {
      fmt::print(stderr, "  cut before {}, between {} and {}: {}\n", name_of(cut.right.first),
                 described(cut.left, mha), described(cut.right, mha), cut.why);
    }
  }
  if (!legality.holds()) {
    fmt::print(stderr, "legal form: {}\n",
               fusion::printed(legality.legal.number(), legality.legal));
    if (draw) fmt::print(stderr, "{}\n", fusion::drawn(legality.legal));
  }
  if (first_character_has_no_effect(legality.legal))
    fmt::print(stderr, "note: character 0 has no effect: no segment is {} to {}\n",
               name_of(kAttention.first), name_of(kAttention.last));
}

json positions(const std::vector<Segment>& segments) {
  json result = json::array();
  for (const Segment& segment : segments) result.push_back({segment.first + 1, segment.last + 1});
  return result;
}

json as_json(int64_t number, const Scheme& scheme, const Legality& legality) {
  json templates = json::array(), illegal = json::array();
  for (const Segment& segment : legality.legal.fused_segments())
    templates.push_back(fusion::template_of(segment, scheme.mha())->name);
  for (const IllegalSegment& segment : legality.illegal) {
    json cuts = json::array();
    for (const AddedCut& cut : segment.cuts)
      cuts.push_back({{"before", name_of(cut.right.first)},
                      {"position", cut.right.first + 1},
                      {"why", cut.why}});
    illegal.push_back({{"segment", {segment.segment.first + 1, segment.segment.last + 1}},
                       {"why", segment.why},
                       {"cuts", cuts}});
  }
  return {{"number", number},
          {"characters", fusion::characters_of(number)},
          {"mha", scheme.mha() == Mha::written_by_hand},
          {"segments", positions(scheme.fused_segments())},
          {"legal", legality.holds()},
          {"illegal", illegal},
          {"legal_form",
           {{"number", legality.legal.number()},
            {"segments", positions(legality.legal.fused_segments())},
            {"templates", templates}}},
          {"program", fusion::program_of(scheme).number()}};
}

void list(const SchemeFlags& flags) {
  for (int64_t number = fusion::kFirstListed; number <= fusion::kLastListed; ++number) {
    const Scheme scheme = Scheme::from_number(number);
    const Legality legality = fusion::check(scheme);
    if (flags.legal && !legality.holds()) continue;
    if (flags.json) {
      fmt::print("{}\n", as_json(number, scheme, legality).dump());
    } else {
      fmt::print("{} {} {}\n", number, legality.holds() ? "legal" : "illegal",
                 legality.legal.number());
    }
  }
}

}  // namespace

int cmd_scheme(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {  // a number below 0 would be an unknown option
    const std::string text = argv[i];
    if (text.size() > 1 && text[0] == '-' && text[1] >= '0' && text[1] <= '9')
      fusion::read_number(text);
  }
  SchemeFlags flags;
  CLI::App app("Says which of the 15 operators of a BERT layer a scheme fuses, and what is legal.",
               "scheme");
  flags.add_to(app);
  if (const auto done = parse_arguments(app, argc, argv)) return *done;
  if (flags.list) {
    list(flags);
    return 0;
  }
  SEQFUSE_CHECK_AS(UsageError, app.count("scheme") + app.count("--segments") > 0,
                   "scheme: nothing was given; expected a number such as 6826, 16 characters 0 or "
                   "1, --segments or --list");
  Scheme scheme;
  int64_t number = 0;
  if (app.count("--segments") > 0) {
    scheme = Scheme(fusion::read_segments(flags.segments),
                    flags.mha ? Mha::written_by_hand : Mha::by_operators);
    number = scheme.number();
  } else {
    number = fusion::read_number(flags.scheme);
    scheme = Scheme::from_number(number);
  }
  const Legality legality = fusion::check(scheme);
  if (flags.json) {
    fmt::print("{}\n", as_json(number, scheme, legality).dump(1));
    return 0;
  }
  if (flags.dump_source) {
    print_sources(legality.legal, {.hidden = flags.shape[0],
                                   .heads = flags.shape[1],
                                   .inner = flags.shape[2],
                                   .seq = flags.shape[3],
                                   .dtype = flags.dtype == "float16" ? DType::f16 : DType::bf16});
    return 0;
  }
  fmt::print("{}\n", fusion::printed(number, scheme));
  if (flags.draw) fmt::print("{}\n", fusion::drawn(scheme));
  std::fflush(stdout);
  report(legality, flags.draw);
  return 0;
}

}  // namespace seqfuse::cli
