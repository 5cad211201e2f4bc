#include "serving/batch/answered_block.h"

#include <cstdint>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/hash.h"

namespace seqfuse::serving {
namespace {

class Bytes {
 public:
  void put(int64_t value) {
    char raw[sizeof value];
    std::memcpy(raw, &value, sizeof value);
    bytes_.append(raw, sizeof value);
  }
  void put(std::string_view text) {
    put(std::ssize(text));
    bytes_ += text;
  }
  template <class T>
  void put(const std::vector<T>& values) {
    put(std::ssize(values));
    bytes_.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

// Reads what Bytes wrote. The hash of the bytes has been checked.
class Taken {
 public:
  explicit Taken(std::string_view bytes) : bytes_(bytes) {}

  int64_t number() {
    int64_t value = 0;
    std::memcpy(&value, next(sizeof value), sizeof value);
    return value;
  }
  std::string text() {
    const auto size = static_cast<size_t>(number());
    return {next(size), size};
  }
  template <class T>
  std::vector<T> values() {
    std::vector<T> values(static_cast<size_t>(number()));
    const size_t size = values.size() * sizeof(T);
    if (size > 0) std::memcpy(values.data(), next(size), size);
    return values;
  }

 private:
  const char* next(size_t size) {
    SEQFUSE_CHECK_AS(DataError, size <= bytes_.size(), "a block of answers is cut off");
    const char* begin = bytes_.data();
    bytes_.remove_prefix(size);
    return begin;
  }

  std::string_view bytes_;
};

}  // namespace

std::string to_bytes(const AnsweredBlock& block, std::string_view key) {
  Bytes out;
  const BatchCounts& counts = block.report.counts;
  for (const int64_t count : {counts.users, counts.rows, counts.answered, counts.cold,
                              counts.without_items, counts.unknown}) {
    out.put(count);
  }
  out.put(counts.first_cold);
  out.put(counts.first_unknown);
  out.put(std::ssize(block.report.warnings));
  for (const std::string& warning : block.report.warnings) out.put(warning);
  out.put(std::ssize(block.users));
  for (const UserItems& user : block.users) {
    out.put(user.user);
    out.put(user.items);
    out.put(user.scores);
  }
  const std::string content = out.take();
  return fmt::format("{}\n{}\n", key, hash_text(content)) + content;
}

std::optional<AnsweredBlock> from_bytes(std::string_view bytes, std::string_view key) {
  if (!bytes.starts_with(key)) return std::nullopt;
  bytes.remove_prefix(key.size());
  const size_t line = bytes.find('\n', 1);
  if (line == std::string_view::npos || bytes.front() != '\n') return std::nullopt;
  const std::string_view hash = bytes.substr(1, line - 1), content = bytes.substr(line + 1);
  if (hash != hash_text(content)) return std::nullopt;
  Taken in(content);
  AnsweredBlock block;
  BatchCounts& counts = block.report.counts;
  for (int64_t* count : {&counts.users, &counts.rows, &counts.answered, &counts.cold,
                         &counts.without_items, &counts.unknown}) {
    *count = in.number();
  }
  counts.first_cold = in.text();
  counts.first_unknown = in.text();
  block.report.warnings.resize(static_cast<size_t>(in.number()));
  for (std::string& warning : block.report.warnings) warning = in.text();
  block.users.resize(static_cast<size_t>(in.number()));
  for (UserItems& user : block.users) {
    user.user = in.text();
    user.items = in.values<int64_t>();
    user.scores = in.values<double>();
  }
  return block;
}

}  // namespace seqfuse::serving
