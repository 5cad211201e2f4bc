// Which segments of a scheme can be one program: those whose kinds of operators fit a template, and that
// keep no value to themselves that a later segment reads. An operator alone is always legal.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fusion/graph.h"
#include "fusion/scheme.h"

namespace seqfuse::fusion {

// A row of operators of some kinds.
struct TemplatePart {
  enum class Count : int8_t { one, any, some };  // some: one or more

  std::vector<OpKind> kinds;
  Count count = Count::one;

  bool takes(OpKind kind) const;
};

struct Template {
  const char* name;
  std::vector<TemplatePart> parts;
  bool written_by_hand = false;  // only where the scheme allows that kernel
};

// In the order in which they are tried.
std::span<const Template> templates();

// "batched GEMM", ...
const char* name_of(OpKind kind);

// The first template that operators of these kinds fit, two or more; null: none.
const Template* matching(std::span<const OpKind> kinds, Mha mha);

// The template of a fused segment; null: it is illegal.
const Template* template_of(Segment segment, Mha mha);

// Why a segment is illegal; "" if it is legal.
std::string why_illegal(Segment segment, Mha mha);

// A cut that an illegal segment needs, between two neighbouring pieces of it.
struct AddedCut {
  Segment left, right;
  std::string why;  // why both as one segment are illegal
};

struct IllegalSegment {
  Segment segment;
  std::string why;
  std::vector<AddedCut> cuts;
};

struct Legality {
  Scheme legal;  // the scheme with the added cuts
  std::vector<IllegalSegment> illegal;

  bool holds() const { return illegal.empty(); }
};

// Splits each illegal segment into as few legal pieces as there can be; of several ways, the one whose last
// piece is the longest, then the one before it, and so on. So no two neighbouring pieces of a segment are
// legal as one.
Legality check(const Scheme& scheme);

// The scheme that actually runs: the legal form, with character 0 set to 1, since it matters only if QK to
// transpose are a segment. Two schemes with the same result are the same program.
Scheme program_of(const Scheme& scheme);

}  // namespace seqfuse::fusion
