#include "cli/model_text.h"

#include <fmt/format.h>

#include <utility>

#include "base/error.h"

#ifdef SEQFUSE_HAS_TOKENIZER
#include "text/generated_text.h"
#include "text/model_tokenizer.h"
#endif

namespace seqfuse::cli {
#ifdef SEQFUSE_HAS_TOKENIZER
namespace {

class Followed : public TextOfIds {
 public:
  Followed(const text::Tokenizer& tokenizer, const std::vector<std::string>& stops)
      : generated_(tokenizer, stops) {}
  std::string push(int64_t id) override { return generated_.push(static_cast<int32_t>(id)); }
  std::string finish() override { return generated_.finish(); }
  bool stopped() const override { return generated_.stopped(); }
  const std::string& text() const override { return generated_.text(); }

 private:
  text::GeneratedText generated_;
};

class TokenizerText : public ModelText {
 public:
  explicit TokenizerText(text::Tokenizer tokenizer) : tokenizer_(std::move(tokenizer)) {}

  std::vector<int64_t> encode(const std::string& text, const std::string& source) const override {
    const std::vector<int32_t> ids = encode_with({}, text, source);
    SEQFUSE_CHECK_AS(DataError, !ids.empty(), "{}: the text is empty; it must have a token",
                     source);
    return {ids.begin(), ids.end()};
  }

  std::vector<int64_t> encode_up_to(const std::string& text, const std::string& source,
                                    int64_t most_tokens, bool& truncated) const override {
    std::vector<int32_t> ids = encode_with({}, text, source);
    truncated = std::ssize(ids) > most_tokens;
    if (truncated) ids = encode_with({.most_tokens = most_tokens}, text, source);
    return {ids.begin(), ids.end()};
  }

  std::unique_ptr<TextOfIds> follow(const std::vector<std::string>& stops) const override {
    return std::make_unique<Followed>(tokenizer_, stops);
  }

  bool has_text(int64_t id) const override {
    return tokenizer_.token_of(static_cast<int32_t>(id)).has_value();
  }

 private:
  std::vector<int32_t> encode_with(const text::EncodeOptions& options, const std::string& text,
                                   const std::string& source) const {
    try {
      return tokenizer_.encode(text, options);
    } catch (const DataError& error) {
      throw_error<DataError>("{}: {}", source, error.what());
    }
  }

  text::Tokenizer tokenizer_;
};

}  // namespace

TextAccess open_text(const std::filesystem::path& folder, int64_t vocab_size) {
  const std::optional<std::filesystem::path> file = text::tokenizer_file(folder);
  if (!file) {
    return {nullptr,
            fmt::format("{} has no tokenizer.json (a BERT: nor vocab.txt), which text needs; "
                        "add the file, or give ids of tokens instead of text",
                        folder.string())};
  }
  text::Tokenizer tokenizer = text::load_tokenizer(*file);
  SEQFUSE_CHECK_AS(DataError, tokenizer.largest_id() < vocab_size,
                   "{} has ids up to {}, but config.json says that the model has a vocabulary of "
                   "{}: the two do not belong together",
                   file->string(), tokenizer.largest_id(), vocab_size);
  return {std::make_unique<TokenizerText>(std::move(tokenizer)), ""};
}
#else
TextAccess open_text(const std::filesystem::path&, int64_t) {
  return {nullptr,
          "this build has no tokenizer, so it reads tokens only; for text install libpcre2-dev and "
          "libutf8proc-dev (`make setup`) and build again"};
}
#endif

const ModelText& needed_text(const TextAccess& access, const std::string& flag) {
  SEQFUSE_CHECK_AS(UsageError, access.text != nullptr, "{}: {}", flag, access.missing);
  return *access.text;
}

}  // namespace seqfuse::cli
