// Added tokens: texts such as <|endoftext|> that have an id of their own wherever they occur.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/json_fields.h"

namespace seqfuse::text {

struct AddedToken {
  std::string content;
  int32_t id = 0;
  bool special = false;                          // left out of decoded text on request
  bool normalized = false;                       // matched in normalized text
  bool single_word = false;                      // only if no word character is adjacent
  bool left_strip = false, right_strip = false;  // absorbs white space before it, after it
};

// Throws DataError for an empty content and members of a wrong type.
AddedToken parse_added_token(const JsonField& description);

// Finds added tokens in text: leftmost first, the longest at each position.
class AddedTokenFinder {
 public:
  // content: the text to find, normalized if the token is. Empty contents are never found.
  void add(const AddedToken& token, std::string_view content);

  // Calls visit(text, nothing) for non-empty text between tokens and visit(text, id) for tokens, in
  // order. The text must be valid UTF-8.
  using Visit = std::function<void(std::string_view text, std::optional<int32_t> id)>;
  void split(std::string_view text, const Visit& visit) const;

 private:
  struct Node {
    std::unordered_map<char, int32_t> next;
    int32_t token = -1;  // the token that ends here
  };
  struct Match {
    size_t begin, end;
    const AddedToken* token;
  };
  std::optional<Match> find(std::string_view text, size_t from) const;

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_ = std::vector<Node>(1);  // a trie; the root first
  std::array<bool, 256> first_bytes_{};
};

}  // namespace seqfuse::text
