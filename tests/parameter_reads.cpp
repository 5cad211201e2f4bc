#include "tests/parameter_reads.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>

namespace seqfuse::test {
namespace {

using Tokens = std::vector<std::string>;

bool is_word(const std::string& token) {
  return std::isalpha(static_cast<unsigned char>(token[0])) != 0 || token[0] == '_';
}

bool is_one_of(const std::string& token, std::initializer_list<std::string_view> set) {
  return std::find(set.begin(), set.end(), token) != set.end();
}

// Words, numbers, "->", and single characters; without comments and strings. Ends in empty tokens, so
// that looking ahead needs no check.
Tokens tokens_of(std::string_view text) {
  Tokens tokens;
  const auto word_end = [&](size_t at) {
    while (at < text.size() &&
           (std::isalnum(static_cast<unsigned char>(text[at])) != 0 || text[at] == '_')) {
      ++at;
    }
    return at;
  };
  for (size_t at = 0; at < text.size();) {
    const std::string_view two = text.substr(at, 2);
    if (two == "//") {
      at = std::min(text.find('\n', at), text.size());
    } else if (text[at] == '"') {
      for (++at; at < text.size() && text[at] != '"'; ++at) at += text[at] == '\\' ? 1 : 0;
      ++at;
    } else if (two == "->") {
      tokens.emplace_back(two);
      at += 2;
    } else if (const size_t end = word_end(at); end > at) {
      tokens.emplace_back(text.substr(at, end - at));
      at = end;
    } else {
      if (std::isspace(static_cast<unsigned char>(text[at])) == 0) tokens.emplace_back(1, text[at]);
      ++at;
    }
  }
  tokens.resize(tokens.size() + 4, " ");
  return tokens;
}

// The name declared at token i, which is a class's name or `auto`: after >, &, * and const.
size_t declared_name(const Tokens& tokens, size_t i) {
  for (++i; is_one_of(tokens[i], {">", "&", "*", "const"});) ++i;
  return i;
}

}  // namespace

void ParameterReads::add_header(std::string_view text) {
  const Tokens tokens = tokens_of(text);
  for (size_t i = 0; i + 4 < tokens.size(); ++i) {
    if (!classes_.contains(tokens[i])) continue;
    const size_t name = declared_name(tokens, i);
    if (is_word(tokens[name]) && is_one_of(tokens[name + 1], {";", "=", "{"})) {
      members_[tokens[name]].insert(tokens[i]);
    }
  }
}

std::set<ParameterReads::Read> ParameterReads::reads_of(std::string_view text,
                                                        std::string_view own_header) const {
  Tokens tokens = tokens_of(own_header);
  for (std::string& token : tokens_of(text)) tokens.push_back(std::move(token));
  // The file's own members may be used before they are declared.
  ParameterReads own(classes_);
  own.add_header(text);
  Owners locals = own.members_;
  std::set<Read> reads;
  for (size_t i = 1; i + 4 < tokens.size(); ++i) {
    const std::string& token = tokens[i];
    const size_t name = declared_name(tokens, i);
    if (classes_.contains(token)) {
      if (is_word(tokens[name]) &&
          is_one_of(tokens[name + 1], {",", ";", ")", "{", "=", ":", "("})) {
        locals[tokens[name]] = {token};
      }
    } else if (token == "auto" && is_word(tokens[name]) &&
               is_one_of(tokens[name + 1], {"=", ":"})) {
      // The last word of what it is made from: a member, or nothing known.
      size_t last = 0;
      int depth = 0;
      for (size_t k = name + 2; k < tokens.size() && tokens[k] != ";"; ++k) {
        depth += tokens[k] == "(" ? 1 : tokens[k] == ")" ? -1 : 0;
        if (depth < 0) break;
        if (is_word(tokens[k])) last = k;
      }
      const auto member = members_.find(tokens[last]);
      const bool known =
          last > 0 && member != members_.end() && is_one_of(tokens[last - 1], {".", "->"});
      locals[tokens[name]] = known ? member->second : std::set<std::string>{};
    } else if (token == "." || token == "->") {
      size_t owner = i - 1;
      if (tokens[owner] == ")" && owner >= 2 && tokens[owner - 1] == "(") owner -= 2;
      const bool is_member = owner > 0 && is_one_of(tokens[owner - 1], {".", "->"});
      const Owners& names = is_member ? members_ : locals;
      const auto found = names.find(tokens[owner]);
      if (found == names.end()) continue;
      for (const std::string& owner_class : found->second) {
        if (classes_.at(owner_class).contains(tokens[i + 1]))
          reads.insert({owner_class, tokens[i + 1]});
      }
    }
  }
  return reads;
}

}  // namespace seqfuse::test
