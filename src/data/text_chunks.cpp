#include "data/text_chunks.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace seqfuse::data {
namespace {

constexpr size_t kChunkBytes = size_t{1} << 20;
constexpr size_t kLongestRow = size_t{1} << 28;

}  // namespace

TextChunks::TextChunks(ByteStream& stream, std::string name, bool quotes)
    : stream_(stream), name_(std::move(name)), quotes_(quotes) {}

bool TextChunks::fill() {
  const size_t before = pending_.size();
  pending_.resize(before + kChunkBytes);
  const size_t n = stream_.read(pending_.data() + before, kChunkBytes);
  pending_.resize(before + n);
  hasher_.update({pending_.data() + before, n});
  bytes_ += static_cast<int64_t>(n);
  if (!std::exchange(started_, true)) {
    const size_t mark = pending_.size() - without_bom(pending_, name_).size();
    pending_.erase(0, mark);
  }
  return n > 0;
}

std::string TextChunks::header() {
  while (pending_.find('\n') == std::string::npos && pending_.size() < kLongestRow && fill()) {
  }
  const size_t newline = pending_.find('\n');
  std::string row = pending_.substr(0, newline);
  pending_.erase(0, newline == std::string::npos ? newline : newline + 1);
  if (!row.empty() && row.back() == '\r') row.pop_back();
  ++line_;
  return row;
}

bool TextChunks::next(TextChunk& chunk) {
  size_t cut = 0;
  for (;;) {
    const bool more = fill();
    cut = more ? whole_rows(pending_, quotes_) : pending_.size();
    if (cut > 0) break;
    if (!more) return false;
    if (pending_.size() > kLongestRow) {
      throw_error<DataError>("{}:{}: a row is longer than {} MiB: is this a text file of rows?",
                             name_, line_, kLongestRow >> 20);
    }
  }
  std::string rest = pending_.substr(cut);
  pending_.resize(cut);
  chunk.text = std::exchange(pending_, std::move(rest));
  chunk.first_line = line_;
  line_ += std::count(chunk.text.begin(), chunk.text.end(), '\n');
  return true;
}

}  // namespace seqfuse::data
