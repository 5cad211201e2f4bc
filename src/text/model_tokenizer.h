// The tokenizer of a model's folder.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "text/tokenizer.h"

namespace seqfuse::text {

// How BERT's text is normalized: the options of tokenizer_config.json, with their defaults.
struct WordPieceOptions {
  bool lowercase = true;              // do_lower_case
  std::optional<bool> strip_accents;  // absent: as lowercase
  bool spaced_ideographs = true;      // tokenize_chinese_chars
};

// BERT's tokenizer of a vocab.txt: a token a line, whose number from 0 is its id; the last line may be
// blank. Special tokens: [UNK], [CLS] and [SEP], which must be there, and [PAD] and [MASK] if they are;
// [CLS] and [SEP] surround a text. Throws DataError: not UTF-8, one of the three is missing, a token
// twice, a line without a token.
Tokenizer word_piece_tokenizer(std::string_view vocab_txt, const WordPieceOptions& options,
                               const std::string& name);

// folder/tokenizer.json, else folder/vocab.txt; nothing if there is neither.
std::optional<std::filesystem::path> tokenizer_file(const std::filesystem::path& folder);

// A tokenizer.json, or a vocab.txt (a name that ends in .txt) with the tokenizer_config.json beside it if
// there is one. Throws as Tokenizer::load and word_piece_tokenizer do, and DataError for files beside it
// (tokenizer_config.json, special_tokens_map.json, added_tokens.json) that ask for what is not done:
// other special or added tokens, or a normalizer other than tokenizer.json's.
Tokenizer load_tokenizer(const std::filesystem::path& file);

}  // namespace seqfuse::text
