// Cuts a stream of text into pieces of whole rows, small enough to be parsed in parallel.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/hash.h"
#include "data/read/csv.h"
#include "data/read/input.h"

namespace seqfuse::data {

struct TextChunk {
  std::string_view text() const { return {buffer.data(), size}; }

  std::string buffer;  // never shrinks: chunks are used again
  size_t size = 0;     // of it: whole rows; the last may lack its newline
};

class TextChunks {
 public:
  // name: of the file, for messages. The stream must outlive this.
  TextChunks(ByteStream& stream, std::string name, bool quotes);

  // The first row, taken out of what next() returns; "" if the file is empty.
  std::string header();
  // False at the end. Throws DataError when a row is longer than 256 MiB.
  bool next(TextChunk& chunk);

  int64_t bytes() const { return bytes_; }             // read so far
  std::string hash() const { return hasher_.text(); }  // of them

 private:
  // Appends to the chunk; false at the end of the stream.
  bool fill(TextChunk& chunk);

  ByteStream& stream_;
  std::string name_;
  bool quotes_;
  std::string rest_;  // read, but of the next chunk
  bool started_ = false;
  int64_t bytes_ = 0;
  Hasher hasher_;
};

}  // namespace seqfuse::data
