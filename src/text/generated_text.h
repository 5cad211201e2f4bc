// The text of generated ids as they come, up to a stop string.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace seqfuse::text {

class GeneratedText {
 public:
  // stops: the text ends before the first of them that is complete. Throws UsageError: one is empty
  // or not UTF-8, so that it could never come.
  GeneratedText(const Tokenizer& tokenizer, std::vector<std::string> stops);

  // Returns the text that can be shown now: whole characters that cannot start a stop string.
  std::string push(int32_t id);
  // The rest, once no id follows.
  std::string finish();

  bool stopped() const { return stopped_; }  // by a stop string: what comes later is ignored
  const std::string& text() const { return text_; }  // all of it, without the stop string

 private:
  std::string add(const std::string& piece, bool last);

  StreamDecoder decoder_;
  std::vector<std::string> stops_;
  std::string text_;
  size_t shown_ = 0;  // bytes of text_
  bool stopped_ = false;
};

}  // namespace seqfuse::text
