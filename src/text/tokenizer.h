// A tokenizer as Hugging Face's tokenizer.json describes it: byte-level or character BPE, with the ids
// that the Python package `tokenizers` gives (0.23.3, Unicode 16). What a file asks for and is not
// supported is refused by name when it is loaded. "truncation" and "padding" are not applied.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace seqfuse::text {

struct EncodeOptions {
  bool add_special_tokens = true;     // those of the post-processor, such as a first <s>
  bool replace_invalid_utf8 = false;  // by U+FFFD; otherwise refused
};

// Immutable: threads may share it. Copies share their data.
class Tokenizer {
 public:
  // Throws IoError (no such file) or DataError (not JSON, not supported, inconsistent), naming the file.
  static Tokenizer load(const std::filesystem::path& file);
  // The same from the JSON itself; name stands for the file in messages.
  static Tokenizer parse(std::string_view json, const std::string& name);

  // Throws DataError with the offset of the first byte that is not UTF-8.
  std::vector<int32_t> encode(std::string_view text, const EncodeOptions& options = {}) const;

  // Ids without a token are left out. Bytes that make no character become U+FFFD.
  std::string decode(std::span<const int32_t> ids, bool skip_special_tokens = true) const;

  // Tokens, added ones included. Ids may have gaps: a model needs largest_id() + 1 rows.
  int64_t vocab_size() const;
  int32_t largest_id() const;
  std::optional<int32_t> id_of(std::string_view token) const;  // as the file writes it
  std::optional<std::string_view> token_of(int32_t id) const;  // normalized if the file says so
  bool is_special(int32_t id) const;

 private:
  friend class StreamDecoder;
  struct Data;
  explicit Tokenizer(std::shared_ptr<const Data> data) : data_(std::move(data)) {}

  std::shared_ptr<const Data> data_;
};

// Decoding while ids are generated. All texts together are decode() of all ids; each is valid UTF-8,
// never a part of a character.
class StreamDecoder {
 public:
  explicit StreamDecoder(Tokenizer tokenizer, bool skip_special_tokens = true);
  ~StreamDecoder();
  StreamDecoder(StreamDecoder&&) noexcept;
  StreamDecoder& operator=(StreamDecoder&&) noexcept;

  std::string push(int32_t id);  // the text that is certain now; may be empty
  std::string finish();          // the rest; call once, at the end

 private:
  struct Steps;
  Tokenizer tokenizer_;
  bool skip_special_tokens_;
  std::unique_ptr<Steps> steps_;
};

}  // namespace seqfuse::text
