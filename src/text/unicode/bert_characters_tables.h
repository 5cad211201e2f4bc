// Data for bert_characters.h.
#pragma once

#include <cstdint>
#include <span>

#include "text/unicode/unicode_tables.h"

namespace seqfuse::text {

// Every step-th character from first to last has a lowercase character, `difference` further on.
struct LowercaseRange {
  char32_t first, last;
  uint32_t step;
  int32_t difference;
};

// Each in order of characters.
struct BertTables {
  std::span<const CharacterRange> removed, spaces, marks, ideographs, white_space, punctuation;
  std::span<const LowercaseRange> lowercase;
};
BertTables bert_tables();

}  // namespace seqfuse::text
