#include "text/bpe.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/utf8.h"
#include "text/byte_alphabet.h"

namespace seqfuse::text {
namespace {

void check_options(const JsonField& model) {
  for (const char* name : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    SEQFUSE_CHECK_AS(DataError, model.text_or(name, "").empty(),
                     "model.{} \"{}\" is not supported, only \"\" is", name,
                     model.text_or(name, ""));
  }
  if (model.has("dropout") && model.member("dropout").value != 0) {
    model.member("dropout").fail("null or 0: merges are never dropped");
  }
}

// "a b" or ["a", "b"].
std::pair<std::string, std::string> read_pair(const JsonField& merge) {
  if (merge.value.is_array()) {
    if (merge.value.size() != 2) merge.fail("two tokens");
    return {merge.element(0).text(), merge.element(1).text()};
  }
  const std::string text = merge.text();
  const size_t space = text.find(' ');
  if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) {
    merge.fail("two tokens with one space between them");
  }
  return {text.substr(0, space), text.substr(space + 1)};
}

}  // namespace

Bpe::Bpe(const JsonField& model, bool byte_level)
    : TokenModel(model.member("vocab")), byte_level_(byte_level) {
  check_options(model);
  byte_fallback_ = model.boolean_or("byte_fallback", false);
  ignore_merges_ = model.boolean_or("ignore_merges", false);
  fuse_unknown_ = model.boolean_or("fuse_unk", false);
  unknown_token_ = model.text_or("unk_token", "");
  read_merges(model.member("merges"));
  for (int byte = 0; byte < 256; ++byte) {
    letter_ids_[byte] = find(letter_of_byte(static_cast<uint8_t>(byte))).value_or(-1);
    fallback_ids_[byte] = find(fmt::format("<0x{:02X}>", byte)).value_or(-1);
  }
}

void Bpe::read_merges(const JsonField& merges) {
  const size_t count = merges.array_size();
  merges_ = PairTable(count);
  int32_t rank = 0;
  for (size_t i = 0; i < count; ++i) {
    const JsonField merge = merges.element(i);
    if (merge.value.is_string() && merge.text().starts_with("#version")) continue;
    const std::pair<std::string, std::string> pair = read_pair(merge);
    const auto id_of = [&](const std::string& token) {
      const std::optional<int32_t> id = find(token);
      SEQFUSE_CHECK_AS(DataError, id,
                       "{} (\"{}\" and \"{}\") needs the token \"{}\", which is not in "
                       "model.vocab",
                       merge.path, pair.first, pair.second, token);
      return *id;
    };
    const int32_t left_id = id_of(pair.first), right_id = id_of(pair.second);
    merges_.set(left_id, right_id, {rank++, id_of(pair.first + pair.second)});
  }
}

std::optional<int32_t> Bpe::find(const std::string& token) const {
  const auto found = vocabulary().find(token);
  return found == vocabulary().end() ? std::nullopt : std::optional(found->second);
}

// An unknown symbol is held back until the next known one, so that fuse_unk can merge a run of them
// into one token. A byte fallback does not flush it: Hugging Face's tokenizers order ids this way.
std::vector<Bpe::Symbol> Bpe::symbols_of(std::string_view piece) const {
  std::vector<Symbol> symbols;
  symbols.reserve(piece.size());
  int32_t unknown = -1;  // the pending unknown id
  const auto append = [&](int32_t id) { symbols.push_back({id, -1, -1}); };
  for (size_t i = 0; i < piece.size();) {
    const size_t length = byte_level_ ? 1 : character_at(piece, i).length;
    const auto byte = static_cast<uint8_t>(piece[i]);
    std::string symbol;
    int32_t id = byte_level_ ? letter_ids_[byte] : -1;
    if (id < 0) {
      symbol = byte_level_ ? letter_of_byte(byte) : std::string(piece.substr(i, length));
      id = find(symbol).value_or(-1);
    }
    i += length;
    if (id >= 0) {
      if (unknown >= 0) append(unknown);
      unknown = -1;
      append(id);
    } else if (!append_fallback(symbol, symbols) && !unknown_token_.empty()) {
      if (unknown >= 0 && !fuse_unknown_) append(unknown);
      unknown = unknown_id(symbol);
    }
  }
  if (unknown >= 0) append(unknown);
  const auto count = static_cast<int32_t>(symbols.size());
  for (int32_t i = 0; i < count; ++i) {
    symbols[i].previous = i - 1;
    symbols[i].next = i + 1 < count ? i + 1 : -1;
  }
  return symbols;
}

// Appends the tokens of the symbol's bytes, if every byte has one.
bool Bpe::append_fallback(std::string_view symbol, std::vector<Symbol>& symbols) const {
  if (!byte_fallback_) return false;
  for (const char byte : symbol) {
    if (fallback_ids_[static_cast<uint8_t>(byte)] < 0) return false;
  }
  for (const char byte : symbol) {
    symbols.push_back({fallback_ids_[static_cast<uint8_t>(byte)], -1, -1});
  }
  return true;
}

int32_t Bpe::unknown_id(std::string_view symbol) const {
  const std::optional<int32_t> id = find(unknown_token_);
  SEQFUSE_CHECK_AS(DataError, id,
                   "the tokenizer has no token for \"{}\", and its unk_token \"{}\" is not in its "
                   "vocabulary",
                   symbol, unknown_token_);
  return *id;
}

// Lowest rank first, then leftmost. The queue may contain stale pairs, of which a merge changed one
// side; they are skipped.
void Bpe::merge(std::vector<Symbol>& symbols) const {
  struct Candidate {
    Merge merge;
    int32_t left;
    bool operator<(const Candidate& other) const {  // reversed, for a max-heap
      return merge.rank != other.merge.rank ? merge.rank > other.merge.rank : left > other.left;
    }
  };
  std::vector<Candidate> heap;
  heap.reserve(symbols.size());
  const auto candidate_at = [&](int32_t left) -> const Merge* {
    if (left < 0 || symbols[left].next < 0) return nullptr;
    return merges_.find(symbols[left].id, symbols[symbols[left].next].id);
  };
  const auto push = [&](int32_t left) {
    if (const Merge* merge = candidate_at(left)) {
      heap.push_back({*merge, left});
      std::push_heap(heap.begin(), heap.end());
    }
  };
  for (int32_t i = 0; i < static_cast<int32_t>(symbols.size()); ++i) {
    if (const Merge* merge = candidate_at(i)) heap.push_back({*merge, i});
  }
  std::make_heap(heap.begin(), heap.end());
  while (!heap.empty()) {
    const Candidate top = heap.front();
    std::pop_heap(heap.begin(), heap.end());
    heap.pop_back();
    Symbol& left = symbols[top.left];
    if (left.merged_away) continue;
    const Merge* merge = candidate_at(top.left);
    if (merge == nullptr || merge->result != top.merge.result) continue;
    Symbol& right = symbols[left.next];
    right.merged_away = true;
    left.id = top.merge.result;
    left.next = right.next;
    if (left.next >= 0) symbols[left.next].previous = top.left;
    push(left.previous);
    push(top.left);
  }
}

void Bpe::encode(std::string_view piece, std::vector<int32_t>& ids) const {
  if (ignore_merges_) {
    std::string token;
    for (const char byte : piece) {
      token += byte_level_ ? letter_of_byte(static_cast<uint8_t>(byte)) : std::string(1, byte);
    }
    if (const std::optional<int32_t> id = find(token)) {
      ids.push_back(*id);
      return;
    }
  }
  std::vector<Symbol> symbols = symbols_of(piece);
  merge(symbols);
  for (const Symbol& symbol : symbols) {
    if (!symbol.merged_away) ids.push_back(symbol.id);
  }
}

}  // namespace seqfuse::text
