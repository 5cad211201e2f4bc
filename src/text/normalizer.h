// The normalizer of a tokenizer.json: BertNormalizer, NFC, NFD, NFKC, NFKD, Prepend, Replace, and
// Sequence of them.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "text/json_fields.h"

namespace seqfuse::text {

class Normalizer {
 public:
  Normalizer() = default;  // leaves text unchanged
  // description: the member "normalizer", not null. Throws DataError that names an unknown type.
  explicit Normalizer(const JsonField& description);

  bool changes_nothing() const { return steps_.empty(); }
  // The text must be valid UTF-8.
  std::string apply(std::string_view text) const;

 private:
  void add(const JsonField& description, int depth);
  void add_bert(const JsonField& description);

  std::vector<std::function<std::string(const std::string&)>> steps_;
};

}  // namespace seqfuse::text
