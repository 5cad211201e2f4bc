// The bytes up to the first NUL are either refused with a DataError or make a tokenizer; the rest
// is a text, which is encoded and decoded without a crash, with the same result when streamed.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/error.h"
#include "text/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace seqfuse::text;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t end = std::min(input.find('\0'), size);
  try {
    const Tokenizer tokenizer = Tokenizer::parse(input.substr(0, end), "fuzz");
    const auto ids = tokenizer.encode(input.substr(end), {.replace_invalid_utf8 = true});
    StreamDecoder decoder(tokenizer);
    std::string text;
    for (const int32_t id : ids) text += decoder.push(id);
    text += decoder.finish();
    if (text != tokenizer.decode(ids)) std::abort();
  } catch (const seqfuse::Error&) {  // a pattern may exceed the match limit
  }
  return 0;
}
