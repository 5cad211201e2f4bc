// Cuts a stream of text into pieces of whole rows, small enough to be parsed in parallel, as UTF-8.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "data/read/csv.h"
#include "data/read/input.h"
#include "data/read/text_encoding.h"

namespace seqfuse::data {

struct TextChunk {
  std::string_view text() const { return {buffer.data(), size}; }

  std::string buffer;  // never shrinks: chunks are used again
  size_t size = 0;     // of it: whole rows; the last may lack its newline
};

class TextChunks {
 public:
  static constexpr size_t kChunkBytes = size_t{1} << 18;  // stays in a core's cache until parsed

  // name: of the file, for messages. The stream must outlive this. A file with a UTF-8 byte order
  // mark is UTF-8 whatever the encoding. chunk_bytes: read at a time.
  TextChunks(ByteStream& stream, std::string name, CsvDialect dialect,
             Encoding encoding = Encoding::utf8, size_t chunk_bytes = kChunkBytes);

  // The fields of the first row that is not blank, trimmed, taken out of what next() returns; empty
  // if there is none. Throws DataError if it is malformed.
  std::vector<std::string> header();
  int64_t header_lines() const { return header_lines_; }  // up to the header's end

  // False at the end. Throws DataError when a row is longer than the dialect allows.
  bool next(TextChunk& chunk);

  int64_t bytes() const { return bytes_; }             // read so far, as they were
  std::string hash() const { return hasher_.text(); }  // of them

 private:
  // Appends to the chunk; false at the end of the stream.
  bool fill(TextChunk& chunk);
  void check_length(const TextChunk& chunk) const;

  ByteStream& stream_;
  std::string name_;
  CsvDialect dialect_;
  Encoding encoding_;
  size_t chunk_bytes_;
  std::string rest_;  // read, but of the next chunk
  bool started_ = false;
  int64_t header_lines_ = 0;
  int64_t bytes_ = 0;
  Hasher hasher_;
};

// The header's names: fields of a row, trimmed. Throws DataError naming the file: malformed, or not
// text.
std::vector<std::string> header_names(const RowSplitter& rows, const std::string& file);

}  // namespace seqfuse::data
