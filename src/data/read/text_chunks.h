// Cuts a stream of text into UTF-8 chunks of whole rows, small enough to parse in parallel.
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

  std::string buffer;  // never shrinks: chunks are reused
  size_t size = 0;     // bytes of whole rows; the last may lack a newline
};

class TextChunks {
 public:
  static constexpr size_t kChunkBytes = size_t{1} << 18;  // stays in a core's cache until parsed

  // name: file name for messages. The stream must outlive this object. A UTF-8 byte order mark
  // overrides the encoding. chunk_bytes: bytes to read at a time.
  TextChunks(ByteStream& stream, std::string name, CsvDialect dialect,
             Encoding encoding = Encoding::utf8, size_t chunk_bytes = kChunkBytes);

  // The trimmed fields of the first non-blank row, which next() then skips; empty if there is none.
  // Throws DataError if it is malformed.
  std::vector<std::string> header();
  int64_t header_lines() const { return header_lines_; }  // up to the header's end

  // False at the end. Throws DataError when a row is longer than the dialect allows.
  bool next(TextChunk& chunk);

  int64_t bytes() const { return bytes_; }             // read so far, before conversion
  std::string hash() const { return hasher_.text(); }  // of these bytes

 private:
  // Appends to the chunk; false at the end of the stream.
  bool fill(TextChunk& chunk);
  void check_length(const TextChunk& chunk) const;

  ByteStream& stream_;
  std::string name_;
  CsvDialect dialect_;
  Encoding encoding_;
  size_t chunk_bytes_;
  std::string rest_;  // already read; belongs to the next chunk
  bool started_ = false;
  int64_t header_lines_ = 0;
  int64_t bytes_ = 0;
  Hasher hasher_;
};

// Column names: the trimmed fields of a header row. Throws DataError naming the file if the row is
// malformed or not text.
std::vector<std::string> header_names(const RowSplitter& rows, const std::string& file);

}  // namespace seqfuse::data
