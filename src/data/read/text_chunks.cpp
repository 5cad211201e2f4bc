#include "data/read/text_chunks.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "data/read/field_values.h"

namespace seqfuse::data {

TextChunks::TextChunks(ByteStream& stream, std::string name, CsvDialect dialect, Encoding encoding,
                       size_t chunk_bytes)
    : stream_(stream),
      name_(std::move(name)),
      dialect_(std::move(dialect)),
      encoding_(encoding),
      chunk_bytes_(chunk_bytes) {}

bool TextChunks::fill(TextChunk& chunk) {
  const size_t before = chunk.size;
  const size_t wanted = std::max(chunk_bytes_, before);
  if (chunk.buffer.size() < before + wanted) chunk.buffer.resize(before + wanted);
  char* read = chunk.buffer.data() + before;
  const size_t n = stream_.read(read, wanted);
  hasher_.update({read, n});
  bytes_ += static_cast<int64_t>(n);
  chunk.size += n;
  if (!std::exchange(started_, true)) {
    const size_t mark = chunk.size - without_bom(chunk.text(), name_).size();
    chunk.buffer.erase(0, mark);
    chunk.size -= mark;
    if (mark > 0) encoding_ = Encoding::utf8;
  }
  if (encoding_ != Encoding::utf8) {
    const std::string converted = to_utf8(chunk.text().substr(before), encoding_);
    chunk.buffer.replace(before, chunk.size - before, converted);
    chunk.size = before + converted.size();
  }
  return n > 0;
}

void TextChunks::check_length(const TextChunk& chunk) const {
  // Twice the longest row is enough for whole_rows() to recognise a malformed row.
  if (chunk.size <= 2 * dialect_.longest_row) return;
  throw_error<DataError>(
      "{}: the row at byte {} is longer than {} MiB: is this a text file of rows?", name_,
      bytes_ - static_cast<int64_t>(chunk.size), dialect_.longest_row >> 20);
}

std::vector<std::string> TextChunks::header() {
  TextChunk chunk;
  for (bool more = true; more; check_length(chunk)) {
    more = fill(chunk);
    const size_t cut = more ? whole_rows(chunk.text(), dialect_) : chunk.size;
    RowSplitter rows(chunk.text().substr(0, cut), dialect_);
    if (!rows.next()) continue;
    header_lines_ = rows.lines_after();
    const auto read = static_cast<size_t>(rows.rest().data() - chunk.buffer.data());
    rest_ = chunk.text().substr(read);
    return header_names(rows, name_);
  }
  return {};
}

bool TextChunks::next(TextChunk& chunk) {
  if (chunk.buffer.size() < rest_.size()) chunk.buffer.resize(rest_.size());
  chunk.size = rest_.copy(chunk.buffer.data(), rest_.size());
  size_t cut = 0;
  for (;;) {
    const bool more = fill(chunk);
    cut = more ? whole_rows(chunk.text(), dialect_) : chunk.size;
    if (cut > 0) break;
    if (!more) return false;
    check_length(chunk);
  }
  rest_ = chunk.text().substr(cut);
  chunk.size = cut;
  return true;
}

std::vector<std::string> header_names(const RowSplitter& rows, const std::string& file) {
  const std::string problem =
      rows.malformed() != nullptr ? std::string(rows.malformed()) : unreadable(rows.row());
  if (!problem.empty()) {
    throw_error<DataError>("{}:{}: {}\n  the first row must name the columns", file,
                           rows.lines_before() + 1, problem);
  }
  std::vector<std::string> names;
  for (const std::string_view field : rows.fields()) names.emplace_back(trim(field));
  return names;
}

}  // namespace seqfuse::data
