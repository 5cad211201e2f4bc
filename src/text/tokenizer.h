// A tokenizer loaded from Hugging Face's tokenizer.json: byte-level or character BPE, or WordPiece,
// with the ids of the Python package `tokenizers` (0.23.3, Unicode 16). Loading refuses unsupported features by
// name. "truncation" and "padding" are not applied.
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
  bool add_special_tokens = true;     // from the post-processor, such as a leading <s>
  bool replace_invalid_utf8 = false;  // with U+FFFD; otherwise an error
  int64_t most_tokens =
      0;  // cuts the text's last tokens off, not special ones around it; 0: no limit
};

// Immutable: threads may share it. Copies share their data.
class Tokenizer {
 public:
  // Throws IoError (no such file) or DataError (not JSON, not supported, inconsistent), naming the file.
  static Tokenizer load(const std::filesystem::path& file);
  // The same from JSON text; name: the file's name in messages.
  static Tokenizer parse(std::string_view json, const std::string& name);

  // Throws DataError with the offset of the first byte that is not UTF-8.
  std::vector<int32_t> encode(std::string_view text, const EncodeOptions& options = {}) const;

  // Skips ids without a token. Bytes that form no character become U+FFFD.
  std::string decode(std::span<const int32_t> ids, bool skip_special_tokens = true) const;

  // Number of tokens, including added ones. Ids may have gaps: a model needs largest_id() + 1 rows.
  int64_t vocab_size() const;
  int32_t largest_id() const;
  std::optional<int32_t> id_of(std::string_view token) const;  // in the file's spelling
  std::optional<std::string_view> token_of(int32_t id) const;  // normalized if the file asks for it
  bool is_special(int32_t id) const;

 private:
  friend class StreamDecoder;
  struct Data;
  explicit Tokenizer(std::shared_ptr<const Data> data) : data_(std::move(data)) {}

  std::shared_ptr<const Data> data_;
};

// Decodes while ids are generated. The concatenated texts equal decode() of all ids; each is valid
// UTF-8, never part of a character.
class StreamDecoder {
 public:
  explicit StreamDecoder(Tokenizer tokenizer, bool skip_special_tokens = true);
  ~StreamDecoder();
  StreamDecoder(StreamDecoder&&) noexcept;
  StreamDecoder& operator=(StreamDecoder&&) noexcept;

  std::string push(int32_t id);  // the text that is final by now; may be empty
  std::string finish();          // the rest; call once, at the end

 private:
  struct Steps;
  Tokenizer tokenizer_;
  bool skip_special_tokens_;
  std::unique_ptr<Steps> steps_;
};

}  // namespace seqfuse::text
