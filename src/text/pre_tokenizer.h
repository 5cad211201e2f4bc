// The pre-tokenizer of a tokenizer.json cuts text into the pieces whose tokens are found one by one:
// ByteLevel, Split, Digits, and Sequence of them.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "text/json_fields.h"

namespace seqfuse::text {

class PreTokenizer {
 public:
  PreTokenizer() = default;  // the text is one piece
  // The member "pre_tokenizer", not null. Throws DataError that names a type it does not know.
  explicit PreTokenizer(const JsonField& description);

  // Whether the model sees bytes (ByteLevel is there, as the last step) or characters.
  bool byte_level() const { return byte_level_; }

  // Calls visit with each piece, in order, none of them empty. Pieces are bytes of the text, with a
  // space before it where add_prefix_space asks for one; they are valid during the call.
  using Visit = std::function<void(std::string_view piece)>;
  void split(std::string_view text, const Visit& visit) const { run(0, text, visit); }

 private:
  using Step = std::function<void(std::string_view text, const Visit& visit)>;
  void add(const JsonField& description, int depth);
  void add_byte_level(const JsonField& description);
  void run(size_t step, std::string_view text, const Visit& visit) const;

  std::vector<Step> steps_;
  bool byte_level_ = false;
};

}  // namespace seqfuse::text
