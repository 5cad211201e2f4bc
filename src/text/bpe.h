// The BPE model of a tokenizer.json: vocabulary, merges, and the encoding of one piece of text.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/pair_table.h"
#include "text/token_model.h"

namespace seqfuse::text {

class Bpe final : public TokenModel {
 public:
  // model: the member "model". byte_level: initial symbols are bytes, written as letters in the
  // vocabulary (byte_alphabet.h); otherwise characters. Throws DataError: merges of unknown tokens, two
  // tokens with one id.
  Bpe(const JsonField& model, bool byte_level);

  // Appends the ids of a non-empty piece of valid UTF-8 (bytes if byte_level), in O(n log n).
  // Throws DataError if a symbol has no token and unk_token is not in the vocabulary.
  void encode(std::string_view piece, std::vector<int32_t>& ids) const override;

 private:
  struct Symbol {
    int32_t id, previous, next;  // neighbours in the piece, -1 at its ends
    bool merged_away = false;
  };
  void read_merges(const JsonField& merges);
  std::optional<int32_t> find(const std::string& token) const;
  std::vector<Symbol> symbols_of(std::string_view piece) const;
  bool append_fallback(std::string_view symbol, std::vector<Symbol>& symbols) const;
  int32_t unknown_id(std::string_view symbol) const;
  void merge(std::vector<Symbol>& symbols) const;

  PairTable merges_;
  bool byte_level_, byte_fallback_, ignore_merges_, fuse_unknown_;
  std::string unknown_token_;  // "": symbols without a token are dropped
  // Ids by byte, -1 if there is no token: of the letters, and of <0x00> to <0xFF>.
  std::array<int32_t, 256> letter_ids_{}, fallback_ids_{};
};

}  // namespace seqfuse::text
