// A string as a stream of bytes.
#pragma once

#include <cstddef>
#include <string_view>

#include "data/read/input.h"

namespace seqfuse {

class MemoryStream final : public data::ByteStream {
 public:
  // The text must outlive the stream.
  explicit MemoryStream(std::string_view text) : text_(text) {}
  size_t read(char* out, size_t size) override {
    const size_t n = text_.copy(out, size);
    text_.remove_prefix(n);
    return n;
  }

 private:
  std::string_view text_;
};

}  // namespace seqfuse
