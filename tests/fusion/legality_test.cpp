// The segments that templates allow, and how illegal ones are split.
#include "fusion/legality.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace seqfuse::legality_test {
namespace {

using namespace fusion;
using enum OpKind;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kByHand = 32768;

std::string template_name(Segment segment, Mha mha = Mha::written_by_hand) {
  const Template* found = template_of(segment, mha);
  return found == nullptr ? "" : found->name;
}

// Every legal segment of the graph, and no other.
TEST(Legality, TheGraphHasTheseLegalSegments) {
  const std::map<std::pair<int, int>, std::string> expected{
      {{0, 1}, "GEMM epilogue"},   {{2, 3}, "GEMM epilogue"},   {{2, 6}, "MHA"},
      {{3, 4}, "reduction"},       {{5, 6}, "GEMM epilogue"},   {{6, 7}, "GEMM prologue"},
      {{6, 8}, "GEMM prologue"},   {{7, 8}, "GEMM epilogue"},   {{8, 9}, "reduction"},
      {{10, 11}, "GEMM epilogue"}, {{10, 12}, "GEMM-GEMM"},     {{10, 13}, "GEMM-GEMM"},
      {{11, 12}, "GEMM prologue"}, {{11, 13}, "GEMM prologue"}, {{12, 13}, "GEMM epilogue"},
      {{13, 14}, "reduction"},
  };
  for (int first = 0; first < kOps; ++first) {
    for (int last = first + 1; last < kOps; ++last) {
      const auto found = expected.find({first, last});
      EXPECT_EQ(template_name({first, last}), found == expected.end() ? "" : found->second)
          << first << " to " << last;
      EXPECT_EQ(why_illegal({first, last}, Mha::written_by_hand).empty(), found != expected.end());
    }
  }
}

TEST(Legality, TemplatesTakeKinds) {
  const auto name = [](const std::vector<OpKind>& kinds, Mha mha = Mha::written_by_hand) {
    const Template* found = matching(kinds, mha);
    return std::string(found == nullptr ? "" : found->name);
  };
  EXPECT_EQ(name({elementwise, layout, elementwise}), "elementwise");
  EXPECT_EQ(name({elementwise, reduction, elementwise}), "reduction");
  EXPECT_EQ(name({gemm, elementwise, layout}), "GEMM epilogue");
  EXPECT_EQ(name({layout, batched_gemm}), "GEMM prologue");
  EXPECT_EQ(name({gemm, gemm}), "GEMM-GEMM");
  EXPECT_EQ(name({batched_gemm, batched_gemm}), "");
  EXPECT_EQ(name({reduction, reduction}), "");
  EXPECT_EQ(name({gemm, elementwise, reduction}), "");
  EXPECT_EQ(name({reduction, gemm}), "");
  EXPECT_EQ(name({gemm, gemm, gemm}), "");
  const std::vector<OpKind> attention{batched_gemm, elementwise, reduction, batched_gemm, layout};
  EXPECT_EQ(name(attention), "MHA");
  EXPECT_EQ(name(attention, Mha::by_operators), "");
}

// fits() takes as many operators for each part as it can, which is right only under this condition.
TEST(Legality, NoPartThatRepeatsComesBeforeOneOfTheSameKinds) {
  for (const Template& pattern : templates()) {
    for (size_t i = 0; i < pattern.parts.size(); ++i) {
      if (pattern.parts[i].count == TemplatePart::Count::one) continue;
      for (size_t j = i + 1; j < pattern.parts.size(); ++j) {
        for (const OpKind kind : pattern.parts[j].kinds)
          EXPECT_FALSE(pattern.parts[i].takes(kind)) << pattern.name;
        if (pattern.parts[j].count != TemplatePart::Count::any) break;
      }
    }
  }
}

TEST(Legality, SaysWhy) {
  EXPECT_EQ(why_illegal({1, 2}, Mha::by_operators), "PV reads bias0+split later");
  EXPECT_EQ(why_illegal({2, 6}, Mha::by_operators), "the template MHA needs character 0 to be 1");
  EXPECT_EQ(why_illegal({9, 10}, Mha::by_operators), "no template for reduction, GEMM");
  EXPECT_EQ(why_illegal({0, 2}, Mha::by_operators),
            "no template for GEMM, elementwise, batched GEMM");
  EXPECT_EQ(why_illegal({0, 1}, Mha::by_operators), "");
  EXPECT_EQ(why_illegal({9, 9}, Mha::by_operators), "");
}

TEST(Legality, SplitsAndReports) {
  const Legality legality = check(Scheme::from_number(1365));
  EXPECT_FALSE(legality.holds());
  EXPECT_EQ(legality.legal.number(), 6826);
  ASSERT_EQ(legality.illegal.size(), 1U);
  EXPECT_EQ(legality.illegal[0].segment, (Segment{0, 3}));
  ASSERT_EQ(legality.illegal[0].cuts.size(), 1U);
  EXPECT_EQ(legality.illegal[0].cuts[0].left, (Segment{0, 1}));
  EXPECT_EQ(legality.illegal[0].cuts[0].right, (Segment{2, 3}));
  EXPECT_THAT(legality.illegal[0].cuts[0].why, HasSubstr("no template for GEMM, elementwise"));
  EXPECT_TRUE(check(Scheme::from_number(6826)).holds());
  // A whole layer as one segment, with and without the kernel written by hand.
  EXPECT_THAT(check(Scheme::from_number(kByHand)).legal.segments(),
              ElementsAre(Segment{0, 1}, Segment{2, 6}, Segment{7, 7}, Segment{8, 9},
                          Segment{10, 12}, Segment{13, 14}));
  EXPECT_THAT(check(Scheme::from_number(0)).legal.segments(),
              ElementsAre(Segment{0, 1}, Segment{2, 2}, Segment{3, 4}, Segment{5, 5}, Segment{6, 7},
                          Segment{8, 9}, Segment{10, 12}, Segment{13, 14}));
}

// The least number of legal pieces of a segment, by trying every set of cuts.
size_t fewest_pieces(Segment segment, Mha mha) {
  const int gaps = segment.last - segment.first;
  size_t fewest = kOps;
  for (int cuts = 0; cuts < 1 << gaps; ++cuts) {
    size_t pieces = 0;
    bool legal = true;
    for (int first = segment.first, op = first; op <= segment.last; ++op) {
      if (op < segment.last && (cuts >> (op - segment.first) & 1) == 0) continue;
      legal = legal && why_illegal({first, op}, mha).empty();
      first = op + 1;
      ++pieces;
    }
    if (legal) fewest = std::min(fewest, pieces);
  }
  return fewest;
}

TEST(Legality, SplitsIntoAsFewPiecesAsThereCanBe) {
  for (const Mha mha : {Mha::by_operators, Mha::written_by_hand}) {
    for (int first = 0; first < kOps; ++first) {
      for (int last = first; last < std::min(first + 10, kOps); ++last) {
        const Legality legality = check(Scheme(std::vector{Segment{first, last}}, mha));
        const size_t cuts = legality.holds() ? 0 : legality.illegal[0].cuts.size();
        EXPECT_EQ(cuts + 1, fewest_pieces({first, last}, mha)) << first << " to " << last;
      }
    }
  }
}

TEST(Legality, PiecesAreLegalAndNoAddedCutCanBeTakenBack) {
  int legal = 0;
  std::set<int64_t> programs;
  for (int64_t number = 0; number <= kLastListed; ++number) {
    if ((number & 1 << 14) != 0) continue;  // the same scheme as its complement
    const Scheme scheme = Scheme::from_number(number);
    const Legality legality = check(scheme);
    ASSERT_TRUE(check(legality.legal).holds()) << number;
    ASSERT_EQ(legality.holds(), legality.legal == scheme) << number;
    std::set<int> added;
    for (const IllegalSegment& illegal : legality.illegal) {
      ASSERT_TRUE(scheme.has(illegal.segment)) << number;
      ASSERT_NE(illegal.why, "") << number;
      for (const AddedCut& cut : illegal.cuts) {
        ASSERT_TRUE(legality.legal.has(cut.left) && legality.legal.has(cut.right)) << number;
        ASSERT_EQ(template_of({cut.left.first, cut.right.last}, scheme.mha()), nullptr) << number;
        ASSERT_NE(cut.why, "") << number;
        added.insert(cut.left.last);
      }
    }
    // Cuts are those of the scheme and the added ones, no other.
    for (int op = 0; op + 1 < kOps; ++op)
      ASSERT_EQ(legality.legal.cut_after(op), scheme.cut_after(op) || added.contains(op));
    if (number < kFirstListed) continue;
    if (legality.holds()) ++legal;
    const Scheme program = program_of(scheme);
    ASSERT_EQ(program_of(program), program) << number;
    programs.insert(program.number());
  }
  // Each legal number of the list is a program of its own, and the illegal ones run as one of them.
  EXPECT_EQ(programs.size(), static_cast<size_t>(legal));
}

TEST(Legality, TheFirstCharacterMattersOnlyForAttention) {
  const Scheme without = Scheme::from_number(6826), with = Scheme::from_number(6826 + kByHand);
  EXPECT_EQ(program_of(without), program_of(with));
  const std::vector<Segment> attention{{2, 6}};
  EXPECT_NE(program_of(Scheme(attention, Mha::by_operators)),
            program_of(Scheme(attention, Mha::written_by_hand)));
}

}  // namespace
}  // namespace seqfuse::legality_test
