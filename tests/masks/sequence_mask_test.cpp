#include "masks/sequence_mask.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace seqfuse::sequence_mask_test {
namespace {

using masks::SequenceMask;

SequenceMask mask_of(const std::vector<std::string>& rules) {
  return SequenceMask::parse(rules);
}

std::string refusal(const std::string& rule) {
  try {
    mask_of({rule});
  } catch (const UsageError& error) {
    return error.what();
  }
  return "none";
}

// Block-diagonal, and at its place in each sequence of a padded batch.
TEST(SequenceMask, BatchesHaveTheMaskOfEachLengthAlone) {
  const std::vector<int64_t> lengths{130, 1, 0, 70, 64};
  for (const auto& rules : std::vector<std::vector<std::string>>{{"none"},
                                                                 {"causal"},
                                                                 {"dilated:40,3"},
                                                                 {"bigbird:5,3,1,2"},
                                                                 {"global:4"},
                                                                 {"causal", "longformer:9,2"},
                                                                 {"random:1", "longformer:70,5"},
                                                                 {"sliding:0"}}) {
    const SequenceMask mask = mask_of(rules);
    const int64_t total = 265, width = 140;
    const auto packed = mask.packed(lengths).dense();
    const auto padded = mask.padded(lengths, width).dense();
    std::vector<uint8_t> as_packed(static_cast<size_t>(total * total), 0);
    std::vector<uint8_t> as_padded(lengths.size() * static_cast<size_t>(width * width), 0);
    int64_t start = 0;
    for (size_t b = 0; b < lengths.size(); ++b) {
      const int64_t n = lengths[b];
      const auto alone = mask.of_length(n).dense();
      for (int64_t q = 0; q < n; ++q) {
        for (int64_t k = 0; k < n; ++k) {
          const uint8_t seen = alone[static_cast<size_t>(q * n + k)];
          as_packed[static_cast<size_t>((start + q) * total + start + k)] = seen;
          as_padded[b * static_cast<size_t>(width * width) + static_cast<size_t>(q * width + k)] =
              seen;
        }
      }
      start += n;
    }
    EXPECT_EQ(packed, as_packed) << rules.back();
    EXPECT_EQ(padded, as_padded) << rules.back();
  }
}

TEST(SequenceMask, NumbersThatAreLeftOutHaveDefaults) {
  EXPECT_EQ(mask_of({"window:3"}).of_length(9).dense(), masks::window(9, 9, 3, 64).dense());
  EXPECT_EQ(mask_of({"bigbird:9,4"}).of_length(300).dense(),
            masks::bigbird(300, 300, 9, 4, 3, 1).dense());
  EXPECT_TRUE(mask_of({"none", "full"}).sees_all());
}

TEST(SequenceMask, OtherRulesAreRefused) {
  EXPECT_EQ(refusal("bigbrid:3")
                .find("mask 'bigbrid:3': there is no kind 'bigbrid' (did you mean "
                      "'bigbird'?); expected none, causal, sliding:SIDE, "),
            0);
  EXPECT_EQ(refusal("sliding:-1"),
            "mask 'sliding:-1': expected sliding:SIDE, with whole numbers of 0 or more");
  EXPECT_EQ(refusal("sliding:1,2"),
            "mask 'sliding:1,2': expected sliding:SIDE, with whole numbers of 0 or more");
  EXPECT_EQ(refusal("window:a,2"),
            "mask 'window:a,2': expected window:LEFT,RIGHT, with whole numbers of 0 or more");
  EXPECT_NE(refusal("dilated:4,0"), "none");
  EXPECT_EQ(refusal("none:"), "mask 'none:': none takes no numbers; expected none");
  EXPECT_EQ(refusal("causal:3"), "mask 'causal:3': causal takes no numbers; expected causal");
}

}  // namespace
}  // namespace seqfuse::sequence_mask_test
