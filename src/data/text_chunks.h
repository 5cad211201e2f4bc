// Cuts a stream of text into pieces of whole rows, small enough to be parsed in parallel.
#pragma once

#include <cstdint>
#include <string>

#include "base/hash.h"
#include "data/csv.h"
#include "data/input.h"

namespace seqfuse::data {

struct TextChunk {
  std::string text;        // whole rows; the last may lack its newline
  int64_t first_line = 1;  // of the file, from 1
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
  bool fill();  // appends to pending_; false at the end of the stream

  ByteStream& stream_;
  std::string name_;
  bool quotes_;
  std::string pending_;
  bool started_ = false;
  int64_t line_ = 1, bytes_ = 0;
  Hasher hasher_;
};

}  // namespace seqfuse::data
