// Accesses members of a tokenizer.json's objects. Errors name the path: "pre_tokenizer.pattern is
// missing". All throw DataError.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace seqfuse::text {

// A JSON value and its path in the file.
struct JsonField {
  const nlohmann::json& value;
  std::string path;

  JsonField member(const std::string& name) const;  // of an object
  bool has(const std::string& name) const;          // a member that is not null
  JsonField element(size_t index) const;            // of an array

  size_t array_size() const;
  std::string text() const;
  bool boolean() const;
  int32_t token_id() const;  // 0 to kLargestTokenId
  size_t count() const;      // not negative

  // For optional members: absent or null returns `otherwise`.
  bool boolean_or(const std::string& name, bool otherwise) const;
  std::string text_or(const std::string& name, const std::string& otherwise) const;

  [[noreturn]] void fail(const std::string& expected) const;  // "PATH is VALUE, expected …"
};

inline constexpr int32_t kLargestTokenId = (1 << 24) - 1;

// Limits the nesting of sequences. Throws DataError.
void check_nesting(const JsonField& sequence, int depth);

}  // namespace seqfuse::text
