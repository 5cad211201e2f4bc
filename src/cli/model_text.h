// Text of a language model: tokens of prompts, and the text of generated ids.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace seqfuse::cli {

// The text of one prompt's new ids as they come.
class TextOfIds {
 public:
  virtual ~TextOfIds() = default;
  virtual std::string push(int64_t id) = 0;     // what can be shown now: whole characters
  virtual std::string finish() = 0;             // the rest, once no id follows
  virtual bool stopped() const = 0;             // a stop string has come
  virtual const std::string& text() const = 0;  // all of it, without the stop string
};

class ModelText {
 public:
  virtual ~ModelText() = default;
  // source: what gave the text, for messages. Throws DataError: it is not UTF-8, or has no tokens.
  virtual std::vector<int64_t> encode(const std::string& text, const std::string& source) const = 0;
  // The same, with at most most_tokens of them: those at the end of the text are left out, special tokens
  // around it stay. A text without tokens has none.
  virtual std::vector<int64_t> encode_up_to(const std::string& text, const std::string& source,
                                            int64_t most_tokens, bool& truncated) const = 0;
  // Throws UsageError: a stop string that cannot come.
  virtual std::unique_ptr<TextOfIds> follow(const std::vector<std::string>& stops) const = 0;
  virtual bool has_text(int64_t id) const = 0;  // whether the tokenizer knows the id
};

struct TextAccess {
  std::unique_ptr<ModelText> text;  // null: there is none
  std::string missing;              // why, and what to do
};

// The tokenizer.json or vocab.txt of a model's folder. None where there is no such file, or where this
// build has no tokenizer. Throws DataError: it cannot be read, or has ids that the model, of a vocabulary of
// vocab_size, does not have.
TextAccess open_text(const std::filesystem::path& folder, int64_t vocab_size);

// The text, for a flag that needs it. Throws UsageError where there is none.
const ModelText& needed_text(const TextAccess& access, const std::string& flag);

}  // namespace seqfuse::cli
