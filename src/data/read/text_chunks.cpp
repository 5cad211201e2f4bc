#include "data/read/text_chunks.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace seqfuse::data {
namespace {

constexpr size_t kChunkBytes = size_t{1} << 18;  // stays in a core's cache until it is parsed
constexpr size_t kLongestRow = size_t{1} << 28;

}  // namespace

TextChunks::TextChunks(ByteStream& stream, std::string name, bool quotes)
    : stream_(stream), name_(std::move(name)), quotes_(quotes) {}

bool TextChunks::fill(TextChunk& chunk) {
  const size_t wanted = std::max(kChunkBytes, chunk.size);
  if (chunk.buffer.size() < chunk.size + wanted) chunk.buffer.resize(chunk.size + wanted);
  char* read = chunk.buffer.data() + chunk.size;
  const size_t n = stream_.read(read, wanted);
  hasher_.update({read, n});
  bytes_ += static_cast<int64_t>(n);
  chunk.size += n;
  if (!std::exchange(started_, true)) {
    const size_t mark = chunk.size - without_bom(chunk.text(), name_).size();
    chunk.buffer.erase(0, mark);
    chunk.size -= mark;
  }
  return n > 0;
}

std::string TextChunks::header() {
  TextChunk chunk;
  while (chunk.text().find('\n') == std::string_view::npos && chunk.size < kLongestRow &&
         fill(chunk)) {
  }
  const size_t newline = std::min(chunk.text().find('\n'), chunk.size);
  std::string row(chunk.text().substr(0, newline));
  rest_ = chunk.text().substr(std::min(newline + 1, chunk.size));
  if (!row.empty() && row.back() == '\r') row.pop_back();
  return row;
}

bool TextChunks::next(TextChunk& chunk) {
  if (chunk.buffer.size() < rest_.size()) chunk.buffer.resize(rest_.size());
  chunk.size = rest_.copy(chunk.buffer.data(), rest_.size());
  size_t cut = 0;
  for (;;) {
    const bool more = fill(chunk);
    cut = more ? whole_rows(chunk.text(), quotes_) : chunk.size;
    if (cut > 0) break;
    if (!more) return false;
    if (chunk.size > kLongestRow) {
      throw_error<DataError>(
          "{}: the row at byte {} is longer than {} MiB: is this a text file of rows?", name_,
          bytes_ - static_cast<int64_t>(chunk.size), kLongestRow >> 20);
    }
  }
  rest_ = chunk.text().substr(cut);
  chunk.size = cut;
  return true;
}

}  // namespace seqfuse::data
