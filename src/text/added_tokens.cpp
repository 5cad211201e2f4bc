#include "text/added_tokens.h"

#include <algorithm>

#include "base/error.h"
#include "text/pattern.h"

namespace seqfuse::text {
namespace {

// Length of a pattern's first match; 0 if there is none.
size_t match_length(const Pattern& pattern, std::string_view text) {
  size_t length = 0;
  pattern.split(text, [&](std::string_view segment, bool is_match) {
    if (is_match && length == 0) length = segment.size();
  });
  return length;
}

std::string_view last_character(std::string_view text) {
  size_t begin = text.size();
  while (begin > 0 && (static_cast<unsigned char>(text[--begin]) & 0xC0) == 0x80) {
  }
  return text.substr(begin);
}

std::string_view first_character(std::string_view text) {
  size_t end = text.empty() ? 0 : 1;
  while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) ++end;
  return text.substr(0, end);
}

bool is_word(std::string_view character) {
  static const Pattern word = Pattern::regex(R"([\w\x{200C}\x{200D}])");
  return match_length(word, character) > 0;
}

bool is_space(std::string_view character) {
  static const Pattern space = Pattern::regex(R"(\s)");
  return match_length(space, character) > 0;
}

// Bytes of white space at the end and at the beginning.
size_t spaces_at_end(std::string_view text) {
  size_t end = text.size();
  while (end > 0 && is_space(last_character(text.substr(0, end)))) {
    end -= last_character(text.substr(0, end)).size();
  }
  return text.size() - end;
}

size_t spaces_at_begin(std::string_view text) {
  size_t begin = 0;
  while (begin < text.size() && is_space(first_character(text.substr(begin)))) {
    begin += first_character(text.substr(begin)).size();
  }
  return begin;
}

}  // namespace

AddedToken parse_added_token(const JsonField& description) {
  AddedToken token;
  token.content = description.member("content").text();
  if (token.content.empty()) description.member("content").fail("the token's text");
  token.id = description.member("id").token_id();
  token.special = description.boolean_or("special", false);
  token.normalized = description.boolean_or("normalized", !token.special);
  token.single_word = description.boolean_or("single_word", false);
  token.left_strip = description.boolean_or("lstrip", false);
  token.right_strip = description.boolean_or("rstrip", false);
  return token;
}

void AddedTokenFinder::add(const AddedToken& token, std::string_view content) {
  if (content.empty()) return;
  first_bytes_[static_cast<unsigned char>(content.front())] = true;
  size_t node = 0;
  for (const char byte : content) {
    const auto [found, is_new] =
        nodes_[node].next.try_emplace(byte, static_cast<int32_t>(nodes_.size()));
    node = found->second;
    if (is_new) nodes_.emplace_back();
  }
  if (nodes_[node].token >= 0) return;  // the first of equal contents wins
  nodes_[node].token = static_cast<int32_t>(tokens_.size());
  tokens_.push_back(token);
}

std::optional<AddedTokenFinder::Match> AddedTokenFinder::find(std::string_view text,
                                                              size_t from) const {
  for (size_t begin = from; begin < text.size(); ++begin) {
    if (!first_bytes_[static_cast<unsigned char>(text[begin])]) continue;
    std::optional<Match> longest;
    const Node* node = &nodes_.front();
    for (size_t i = begin; i < text.size(); ++i) {
      const auto next = node->next.find(text[i]);
      if (next == node->next.end()) break;
      node = &nodes_[next->second];
      if (node->token >= 0) longest = Match{begin, i + 1, &tokens_[node->token]};
    }
    if (longest) return longest;
  }
  return std::nullopt;
}

void AddedTokenFinder::split(std::string_view text, const Visit& visit) const {
  size_t done = 0;  // the end of the last token, including white space stripped by it
  for (auto match = find(text, 0); match; match = find(text, match->end)) {
    auto [begin, end, token] = *match;
    if (token->single_word && (is_word(last_character(text.substr(0, begin))) ||
                               is_word(first_character(text.substr(end))))) {
      continue;
    }
    if (token->left_strip) begin = std::max(begin - spaces_at_end(text.substr(0, begin)), done);
    if (token->right_strip) end += spaces_at_begin(text.substr(end));
    if (done < begin) visit(text.substr(done, begin - done), std::nullopt);
    visit(text.substr(begin, end - begin), token->id);
    done = end;
  }
  if (done != text.size()) visit(text.substr(done), std::nullopt);
}

}  // namespace seqfuse::text
