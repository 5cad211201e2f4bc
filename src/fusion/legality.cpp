#include "fusion/legality.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

namespace seqfuse::fusion {
namespace {

using enum OpKind;
using Count = TemplatePart::Count;

const Node& node(int op) {
  return kGraph[static_cast<size_t>(op)];
}

std::vector<OpKind> kinds_of(Segment segment) {
  std::vector<OpKind> kinds;
  for (int op = segment.first; op <= segment.last; ++op) kinds.push_back(node(op).kind);
  return kinds;
}

// Takes as many operators for each part as it can: right, since a part that repeats is never followed by
// one that takes the same kinds.
bool fits(const Template& pattern, std::span<const OpKind> kinds) {
  size_t next = 0;
  for (const TemplatePart& part : pattern.parts) {
    const size_t begin = next;
    const size_t most = part.count == Count::one ? 1 : kinds.size();
    while (next < kinds.size() && next - begin < most && part.takes(kinds[next])) ++next;
    if (part.count != Count::any && next == begin) return false;
  }
  return next == kinds.size();
}

struct HiddenValue {
  int op, reader;
};

// A value that a segment would keep to itself though an operator behind it reads it; op -1: none.
HiddenValue hidden_value(Segment segment) {
  for (int op = segment.first; op < segment.last; ++op) {
    for (int reader = segment.last + 1; reader < kOps; ++reader) {
      const auto& reads = node(reader).reads;
      if (std::find(reads.begin(), reads.end(), op) != reads.end()) return {op, reader};
    }
  }
  return {-1, -1};
}

// Legal pieces of a segment, as few as there can be.
std::vector<Segment> pieces_of(Segment segment, Mha mha) {
  std::array<int, kOps + 1> fewest{};  // of the operators from segment.first to before the index
  std::array<int, kOps + 1> begin{};   // of the last of these pieces
  for (int end = segment.first + 1; end <= segment.last + 1; ++end) {
    fewest[end] = kOps + 1;
    for (int first = segment.first; first < end; ++first) {  // the longest piece first
      const Segment piece{first, end - 1};
      if (fewest[first] + 1 >= fewest[end]) continue;
      if (piece.fused() && template_of(piece, mha) == nullptr) continue;
      fewest[end] = fewest[first] + 1;
      begin[end] = first;
    }
  }
  std::vector<Segment> pieces;
  for (int end = segment.last + 1; end > segment.first; end = begin[end])
    pieces.insert(pieces.begin(), {begin[end], end - 1});
  return pieces;
}

}  // namespace

bool TemplatePart::takes(OpKind kind) const {
  return std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
}

std::span<const Template> templates() {
  static const std::vector<OpKind> pointwise{elementwise, layout}, product{gemm, batched_gemm};
  static const std::vector<Template> table{
      {"elementwise", {{pointwise, Count::some}}},
      {"reduction", {{pointwise, Count::any}, {{reduction}}, {pointwise, Count::any}}},
      {"GEMM epilogue", {{product}, {pointwise, Count::some}}},
      {"GEMM prologue", {{pointwise, Count::some}, {product}, {pointwise, Count::any}}},
      {"GEMM-GEMM", {{{gemm}}, {pointwise, Count::any}, {{gemm}}, {pointwise, Count::any}}},
      {"MHA",
       {{{batched_gemm}}, {{elementwise}}, {{reduction}}, {{batched_gemm}}, {{layout}}},
       /*written_by_hand=*/true},
  };
  return table;
}

const char* name_of(OpKind kind) {
  switch (kind) {
    case gemm:
      return "GEMM";
    case batched_gemm:
      return "batched GEMM";
    case elementwise:
      return "elementwise";
    case reduction:
      return "reduction";
    case layout:
      return "layout";
  }
  return "";
}

const Template* matching(std::span<const OpKind> kinds, Mha mha) {
  for (const Template& pattern : templates()) {
    if (pattern.written_by_hand && mha != Mha::written_by_hand) continue;
    if (fits(pattern, kinds)) return &pattern;
  }
  return nullptr;
}

const Template* template_of(Segment segment, Mha mha) {
  using OfSegments = std::array<std::array<const Template*, kOps>, kOps>;
  static const std::array<OfSegments, 2> found = [] {  // a search asks again and again
    std::array<OfSegments, 2> table{};
    for (const Mha m : {Mha::by_operators, Mha::written_by_hand}) {
      for (int first = 0; first < kOps; ++first) {
        for (int last = first + 1; last < kOps; ++last) {
          if (hidden_value({first, last}).op < 0)
            table[static_cast<size_t>(m)][first][last] = matching(kinds_of({first, last}), m);
        }
      }
    }
    return table;
  }();
  return found[static_cast<size_t>(mha)][segment.first][segment.last];
}

std::string why_illegal(Segment segment, Mha mha) {
  if (!segment.fused() || template_of(segment, mha) != nullptr) return "";
  const std::vector<OpKind> kinds = kinds_of(segment);
  if (matching(kinds, mha) != nullptr) {
    const HiddenValue value = hidden_value(segment);
    return fmt::format("{} reads {} later", node(value.reader).name, node(value.op).name);
  }
  if (const Template* by_hand = matching(kinds, Mha::written_by_hand))
    return fmt::format("the template {} needs character 0 to be 1", by_hand->name);
  std::vector<const char*> names;
  for (const OpKind kind : kinds) names.push_back(name_of(kind));
  return fmt::format("no template for {}", fmt::join(names, ", "));
}

Legality check(const Scheme& scheme) {
  Legality result;
  std::vector<Segment> all;
  for (const Segment& segment : scheme.segments()) {
    const std::vector<Segment> pieces = pieces_of(segment, scheme.mha());
    all.insert(all.end(), pieces.begin(), pieces.end());
    if (pieces.size() == 1) continue;
    IllegalSegment illegal{segment, why_illegal(segment, scheme.mha()), {}};
    for (size_t i = 1; i < pieces.size(); ++i) {
      illegal.cuts.push_back({pieces[i - 1], pieces[i],
                              why_illegal({pieces[i - 1].first, pieces[i].last}, scheme.mha())});
    }
    result.illegal.push_back(std::move(illegal));
  }
  result.legal = Scheme(all, scheme.mha());
  return result;
}

Scheme program_of(const Scheme& scheme) {
  return {check(scheme).legal.segments(), Mha::written_by_hand};
}

}  // namespace seqfuse::fusion
