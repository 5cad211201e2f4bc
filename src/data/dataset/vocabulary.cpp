#include "data/dataset/vocabulary.h"

#include "data/read/field_values.h"

namespace seqfuse::data {

std::string Vocabulary::context_value(int64_t /*feature*/, int64_t value) const {
  return std::to_string(value);
}

std::optional<int64_t> Vocabulary::find_context(int64_t feature, std::string_view raw_value) const {
  const auto value = parse_canonical_int64(raw_value);
  const int64_t size = manifest_.context[static_cast<size_t>(feature)].vocab_size;
  return value && *value >= 1 && *value < size ? value : std::nullopt;
}

}  // namespace seqfuse::data
