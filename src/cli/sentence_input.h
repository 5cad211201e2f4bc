// The sentences of `seqfuse encode`: lines of text or of ids.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cli/model_text.h"

namespace CLI {
class App;
}

namespace seqfuse::cli {

// --text-file and --ids, of which exactly one must be given, for SentenceInput::of_text_file and of_ids.
void add_sentence_options(CLI::App& app, std::string& text_file, std::string& ids);

struct SentenceLimits {
  int64_t most_tokens = 0;  // of a sentence
  bool truncate = true;     // longer ones; else they are refused
  const char* advice = "shorten it, or leave out --no-truncation";  // where they are refused
};

// One sentence a line, read whole and turned into ids as they are asked for.
class SentenceInput {
 public:
  // A file of text. text: must outlive this object. Throws IoError, or DataError for a file without a
  // line.
  static SentenceInput of_text_file(const std::string& file, const ModelText& text);
  // A file with the ids of a sentence on each line, with commas or spaces between them; or one
  // sentence's ids themselves, such as 5,6,7. vocab_size: of the model. Throws as above.
  static SentenceInput of_ids(const std::string& file_or_ids, int64_t vocab_size);

  int64_t count() const { return static_cast<int64_t>(lines_.size()); }
  // The ids of sentences [begin, end), from 0. Longer ones than the limit lose their last tokens but
  // not the special ones after them, which --ids has none of, and are counted. Throws DataError that
  // names file and line: no token, not UTF-8, no number, an id outside the vocabulary, too long where
  // that is refused; of ids that were given themselves UsageError.
  std::vector<std::vector<int64_t>> ids(int64_t begin, int64_t end, const SentenceLimits& limits);
  int64_t truncated() const { return truncated_; }  // so far

 private:
  std::vector<int64_t> ids_of_line(const std::string& line, const std::string& source,
                                   const SentenceLimits& limits);
  std::vector<int64_t> numbers_of_line(std::string_view line, const std::string& source) const;

  std::string source_;  // the file; "": ids were given themselves
  std::vector<std::string> lines_;
  const ModelText* text_ = nullptr;  // null: ids
  int64_t vocab_size_ = 0;           // of ids
  int64_t truncated_ = 0;
};

}  // namespace seqfuse::cli
