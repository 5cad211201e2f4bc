#include "text/model_tokenizer.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "text/json_fields.h"
#include "text/utf8.h"

namespace seqfuse::text {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// Lines may end in \r\n; white space at their ends is no part of a token.
json vocabulary_of(std::string_view text, const std::string& name) {
  json vocabulary = json::object();
  int32_t id = 0;
  while (!text.empty()) {
    const size_t newline = std::min(text.find('\n'), text.size());
    std::string_view token = text.substr(0, newline);
    const size_t last = token.find_last_not_of(" \t\r");
    token = token.substr(0, last == std::string_view::npos ? 0 : last + 1);
    SEQFUSE_CHECK_AS(DataError, !token.empty(), "{}: line {} is blank; expected a token", name,
                     id + 1);
    const bool is_new = vocabulary.emplace(std::string(token), id).second;
    SEQFUSE_CHECK_AS(DataError, is_new, "{}: line {} has the token \"{}\" a second time", name,
                     id + 1, token);
    ++id;
    text.remove_prefix(std::min(newline + 1, text.size()));
  }
  return vocabulary;
}

WordPieceOptions options_of(const fs::path& file) {
  const json root = json::parse(read_file(file), nullptr, /*allow_exceptions=*/false);
  SEQFUSE_CHECK_AS(DataError, root.is_object(), "{} is not a JSON object", file.string());
  const JsonField fields{root, ""};
  WordPieceOptions options;
  try {
    options.lowercase = fields.boolean_or("do_lower_case", true);
    options.spaced_ideographs = fields.boolean_or("tokenize_chinese_chars", true);
    if (fields.has("strip_accents"))
      options.strip_accents = fields.member("strip_accents").boolean();
  } catch (const DataError& error) {
    throw_error<DataError>("{}: {}", file.string(), error.what());
  }
  return options;
}

}  // namespace

Tokenizer word_piece_tokenizer(std::string_view vocab_txt, const WordPieceOptions& options,
                               const std::string& name) {
  const size_t invalid = find_invalid_utf8(vocab_txt);
  SEQFUSE_CHECK_AS(DataError, invalid == vocab_txt.size(),
                   "{} is not UTF-8: byte {} begins no character", name, invalid);
  const json vocabulary = vocabulary_of(vocab_txt, name);
  SEQFUSE_CHECK_AS(DataError, vocabulary.contains("[UNK]"),
                   "{} has no token [UNK]; expected the vocabulary of a BERT", name);
  json root = {{"normalizer",
                {{"type", "BertNormalizer"},
                 {"clean_text", true},
                 {"handle_chinese_chars", options.spaced_ideographs},
                 {"strip_accents", options.strip_accents ? json(*options.strip_accents) : json()},
                 {"lowercase", options.lowercase}}},
               {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
               {"decoder", {{"type", "WordPiece"}}},
               {"model", {{"type", "WordPiece"}, {"vocab", vocabulary}}},
               {"added_tokens", json::array()}};
  for (const char* token : {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}) {
    if (!vocabulary.contains(token)) continue;
    root["added_tokens"].push_back(
        {{"id", vocabulary[token]}, {"content", token}, {"special", true}, {"normalized", false}});
  }
  if (vocabulary.contains("[CLS]") && vocabulary.contains("[SEP]")) {
    root["post_processor"] = {{"type", "BertProcessing"},
                              {"cls", {"[CLS]", vocabulary["[CLS]"]}},
                              {"sep", {"[SEP]", vocabulary["[SEP]"]}}};
  }
  return Tokenizer::parse(root.dump(), name);
}

std::optional<fs::path> tokenizer_file(const fs::path& folder) {
  std::error_code ignored;
  for (const char* name : {"tokenizer.json", "vocab.txt"}) {
    if (fs::exists(folder / name, ignored)) return folder / name;
  }
  return std::nullopt;
}

Tokenizer load_tokenizer(const fs::path& file) {
  if (file.extension() != ".txt") return Tokenizer::load(file);
  std::error_code ignored;
  const fs::path config = file.parent_path() / "tokenizer_config.json";
  return word_piece_tokenizer(read_file(file),
                              fs::exists(config, ignored) ? options_of(config) : WordPieceOptions(),
                              file.string());
}

}  // namespace seqfuse::text
