#include "text/model_tokenizer.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/utf8.h"
#include "text/json_fields.h"

namespace seqfuse::text {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::array kSpecialTokens{"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
constexpr const char* kAdvice =
    "save the tokenizer as tokenizer.json, which can say that (save_pretrained of the fast "
    "tokenizer)";

bool is_special(const std::string& token) {
  return std::find(kSpecialTokens.begin(), kSpecialTokens.end(), token) != kSpecialTokens.end();
}

json read_object(const fs::path& file) {
  json root = json::parse(read_file(file), nullptr, /*allow_exceptions=*/false);
  SEQFUSE_CHECK_AS(DataError, root.is_object(), "{} is not a JSON object", file.string());
  return root;
}

// Lines may end in \r\n; white space at their ends is no part of a token. The last line may be blank.
json vocabulary_of(std::string_view text, const std::string& name) {
  json vocabulary = json::object();
  int32_t id = 0;
  while (!text.empty()) {
    const size_t newline = std::min(text.find('\n'), text.size());
    std::string_view token = text.substr(0, newline);
    const size_t last = token.find_last_not_of(" \t\r");
    token = token.substr(0, last == std::string_view::npos ? 0 : last + 1);
    text.remove_prefix(std::min(newline + 1, text.size()));
    if (token.empty() && text.empty() && id > 0) break;
    SEQFUSE_CHECK_AS(DataError, !token.empty(), "{}: line {} is blank; expected a token", name,
                     id + 1);
    const bool is_new = vocabulary.emplace(std::string(token), id).second;
    SEQFUSE_CHECK_AS(DataError, is_new, "{}: line {} has the token \"{}\" a second time", name,
                     id + 1, token);
    ++id;
  }
  return vocabulary;
}

// The text of a token that a file gives as a string or as {"content": …, …}.
std::string content_of(const JsonField& token) {
  return token.value.is_object() ? token.member("content").text() : token.text();
}

// cls_token and so on of a tokenizer_config.json or special_tokens_map.json.
void refuse_other_names(const JsonField& fields) {
  constexpr std::array kMembers{"pad_token", "unk_token", "cls_token", "sep_token", "mask_token"};
  for (size_t i = 0; i < kMembers.size(); ++i) {
    if (!fields.has(kMembers[i])) continue;
    const std::string token = content_of(fields.member(kMembers[i]));
    SEQFUSE_CHECK_AS(DataError, token == kSpecialTokens[i],
                     "{} is \"{}\"; with a vocab.txt it must be \"{}\": {}", kMembers[i], token,
                     kSpecialTokens[i], kAdvice);
  }
  constexpr const char* kFurther = "additional_special_tokens";
  SEQFUSE_CHECK_AS(DataError, !fields.has(kFurther) || fields.member(kFurther).array_size() == 0,
                   "{} has tokens; with a vocab.txt it must be empty: {}", kFurther, kAdvice);
}

void refuse_added_tokens(const JsonField& fields) {
  if (!fields.has("added_tokens_decoder")) return;
  const JsonField added = fields.member("added_tokens_decoder");
  if (!added.value.is_object()) added.fail("an object");
  for (const auto& [id, token] : added.value.items()) {
    const JsonField field{token, "added_tokens_decoder." + id};
    const std::string content = content_of(field);
    bool is_plain = is_special(content);
    for (const char* flag : {"lstrip", "rstrip", "single_word"}) {
      is_plain = is_plain && !(token.is_object() && field.boolean_or(flag, false));
    }
    SEQFUSE_CHECK_AS(
        DataError, is_plain,
        "{} is \"{}\"; beside a vocab.txt only [PAD], [UNK], [CLS], [SEP] and [MASK] may be "
        "added, without lstrip, rstrip and single_word: {}",
        field.path, content, kAdvice);
  }
}

void refuse_other_splits(const JsonField& fields) {
  SEQFUSE_CHECK_AS(DataError, fields.boolean_or("do_basic_tokenize", true),
                   "do_basic_tokenize is false; with a vocab.txt it must be true");
  SEQFUSE_CHECK_AS(DataError,
                   !fields.has("never_split") || fields.member("never_split").array_size() == 0,
                   "never_split has tokens; with a vocab.txt it must be empty: {}", kAdvice);
}

// Errors name the file.
template <class Read>
void with_file(const fs::path& file, const Read& read) {
  std::error_code ignored;
  if (!fs::exists(file, ignored)) return;
  const json root = read_object(file);
  try {
    read(JsonField{root, ""});
  } catch (const DataError& error) {
    throw_error<DataError>("{}: {}", file.string(), error.what());
  }
}

// Options from the files next to a vocab.txt.
WordPieceOptions options_of(const fs::path& folder) {
  WordPieceOptions options;
  with_file(folder / "tokenizer_config.json", [&](const JsonField& fields) {
    refuse_other_names(fields);
    refuse_added_tokens(fields);
    refuse_other_splits(fields);
    options.lowercase = fields.boolean_or("do_lower_case", true);
    options.spaced_ideographs = fields.boolean_or("tokenize_chinese_chars", true);
    if (fields.has("strip_accents"))
      options.strip_accents = fields.member("strip_accents").boolean();
  });
  with_file(folder / "special_tokens_map.json", refuse_other_names);
  with_file(folder / "added_tokens.json", [](const JsonField& fields) {
    for (const auto& [token, id] : fields.value.items()) {
      SEQFUSE_CHECK_AS(
          DataError, is_special(token),
          "it adds the token \"{}\"; beside a vocab.txt only [PAD], [UNK], [CLS], [SEP] and "
          "[MASK] may be added: {}",
          token, kAdvice);
    }
  });
  return options;
}

// Programs differ in which of the two files they follow.
void check_agreement(const fs::path& file) {
  with_file(file.parent_path() / "tokenizer_config.json", [&](const JsonField& config) {
    if (!config.has("do_lower_case") && !config.has("strip_accents")) return;
    const json root = read_object(file);
    const auto found = root.find("normalizer");
    if (found == root.end() || !found->is_object()) return;
    const JsonField normalizer{*found, "normalizer"};
    if (normalizer.text_or("type", "") != "BertNormalizer") return;
    constexpr std::array<std::array<const char*, 2>, 2> kPairs{
        {{"do_lower_case", "lowercase"}, {"strip_accents", "strip_accents"}}};
    const bool lowercase = normalizer.boolean_or("lowercase", true);
    for (const auto& [theirs, ours] : kPairs) {
      if (!config.has(theirs)) continue;
      const bool wanted = config.member(theirs).boolean();
      const bool applied =
          normalizer.boolean_or(ours, lowercase);  // without strip_accents: as lowercase
      SEQFUSE_CHECK_AS(DataError, wanted == applied,
                       "{} is {}, but the normalizer of {} says {}: make the two files agree",
                       theirs, wanted, file.filename().string(), applied);
    }
  });
}

}  // namespace

Tokenizer word_piece_tokenizer(std::string_view vocab_txt, const WordPieceOptions& options,
                               const std::string& name) {
  const size_t invalid = find_invalid_utf8(vocab_txt);
  SEQFUSE_CHECK_AS(DataError, invalid == vocab_txt.size(),
                   "{} is not UTF-8: byte {} begins no character", name, invalid);
  const json vocabulary = vocabulary_of(vocab_txt, name);
  for (const char* token : {"[UNK]", "[CLS]", "[SEP]"}) {
    SEQFUSE_CHECK_AS(DataError, vocabulary.contains(token),
                     "{} has no token {}; expected the vocabulary of a BERT", name, token);
  }
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
  for (const char* token : kSpecialTokens) {
    if (!vocabulary.contains(token)) continue;
    root["added_tokens"].push_back(
        {{"id", vocabulary[token]}, {"content", token}, {"special", true}, {"normalized", false}});
  }
  root["post_processor"] = {{"type", "BertProcessing"},
                            {"cls", {"[CLS]", vocabulary["[CLS]"]}},
                            {"sep", {"[SEP]", vocabulary["[SEP]"]}}};
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
  if (file.extension() == ".txt") {
    return word_piece_tokenizer(read_file(file), options_of(file.parent_path()), file.string());
  }
  check_agreement(file);
  return Tokenizer::load(file);
}

}  // namespace seqfuse::text
