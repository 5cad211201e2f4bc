#include "text/generated_text.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/utf8.h"

namespace seqfuse::text {
namespace {

// Bytes at the end of text that begin a stop string but are not all of one.
size_t begun_stop(std::string_view text, const std::vector<std::string>& stops) {
  size_t longest = 0;
  for (const std::string_view stop : stops) {
    for (size_t length = std::min(stop.size() - 1, text.size()); length > longest; --length) {
      if (text.ends_with(stop.substr(0, length))) longest = length;
    }
  }
  return longest;
}

}  // namespace

GeneratedText::GeneratedText(const Tokenizer& tokenizer, std::vector<std::string> stops)
    : decoder_(tokenizer), stops_(std::move(stops)) {
  for (const std::string& stop : stops_) {
    SEQFUSE_CHECK_AS(UsageError, !stop.empty(), "a stop string is empty; leave it out");
    SEQFUSE_CHECK_AS(UsageError, find_invalid_utf8(stop) == stop.size(),
                     "a stop string is not UTF-8: byte {} begins no character, so it cannot come",
                     find_invalid_utf8(stop));
  }
}

std::string GeneratedText::push(int32_t id) {
  return stopped_ ? std::string() : add(decoder_.push(id), /*last=*/false);
}

std::string GeneratedText::finish() {
  return stopped_ ? std::string() : add(decoder_.finish(), /*last=*/true);
}

std::string GeneratedText::add(const std::string& piece, bool last) {
  text_ += piece;
  size_t end = std::string::npos;
  for (const std::string& stop : stops_) end = std::min(end, text_.find(stop, shown_));
  stopped_ = end != std::string::npos;
  if (stopped_) text_.resize(end);
  const size_t held = stopped_ || last ? 0 : begun_stop(text_, stops_);
  const size_t from = std::exchange(shown_, text_.size() - held);
  return text_.substr(from, shown_ - from);
}

}  // namespace seqfuse::text
