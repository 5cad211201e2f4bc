// The pre-tokenizer of a tokenizer.json, which cuts text into pieces that are encoded one by one:
// BertPreTokenizer, ByteLevel, Split, Digits, and Sequence of them.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "text/json_fields.h"

namespace seqfuse::text {

class PreTokenizer {
 public:
  PreTokenizer() = default;  // the text is one piece
  // description: the member "pre_tokenizer", not null. Throws DataError that names an unknown type.
  explicit PreTokenizer(const JsonField& description);

  // Whether the model gets bytes (ByteLevel is the last step) or characters.
  bool byte_level() const { return byte_level_; }

  // Calls visit with each piece, none empty, in order. A piece is bytes of the text, with a leading
  // space if add_prefix_space asks for one; valid during the call.
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
