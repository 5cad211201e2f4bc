// Text cut into chunks gives the same rows as the whole text, wherever the cuts fall.
#include "data/read/text_chunks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/random.h"
#include "tests/memory_stream.h"

namespace seqfuse::data::data_chunks_test {
namespace {

using testing::ElementsAre;
using Rows = std::vector<std::vector<std::string>>;

// Appends each row's line number and fields.
int64_t append(std::string_view text, const CsvDialect& dialect, int64_t lines, Rows& out) {
  RowSplitter rows(text, dialect);
  while (rows.next()) {
    auto& row =
        out.emplace_back(std::vector<std::string>{std::to_string(lines + rows.lines_before())});
    if (rows.malformed() != nullptr) {
      row.emplace_back("malformed");
      row.emplace_back(rows.row());
    } else {
      row.insert(row.end(), rows.fields().begin(), rows.fields().end());
    }
  }
  return lines + rows.lines_before();
}

Rows whole(std::string_view text, const CsvDialect& dialect) {
  Rows rows;
  append(text, dialect, 0, rows);
  return rows;
}

Rows in_chunks(std::string_view text, const CsvDialect& dialect, size_t chunk_bytes) {
  MemoryStream stream(text);
  TextChunks chunks(stream, "f", dialect, Encoding::utf8, chunk_bytes);
  Rows rows;
  TextChunk chunk;
  for (int64_t lines = 0; chunks.next(chunk);) lines = append(chunk.text(), dialect, lines, rows);
  return rows;
}

TEST(Chunks, RowsDoNotDependOnTheCuts) {
  Random random(5);
  const std::vector<std::string> tokens = {"\"",   "\"",   "\"\"", ",",   ",",  "\n",
                                           "\r\n", "\r",   ":",    "::",  "a",  "bc",
                                           " ",    "\n\"", "\"\n", ",\"", "\","};
  for (const CsvDialect& dialect :
       {CsvDialect{",", true}, CsvDialect{"::", true}, CsvDialect{",", false},
        CsvDialect{",", true, 12}, CsvDialect{",", true, 1 << 20, "a"},
        CsvDialect{"::", true, 1 << 20, "::"}}) {
    for (int trial = 0; trial < 20000; ++trial) {
      std::string text;
      for (uint64_t n = random.below(40); n > 0; --n) text += tokens[random.below(tokens.size())];
      const size_t chunk_bytes = 1 + random.below(20);
      // A row that is too long for the dialect is refused; no such row here has 2 * 12 characters.
      const size_t longest = 24;
      if (dialect.longest_row < longest && text.size() > longest) text.resize(longest);
      ASSERT_EQ(in_chunks(text, dialect, chunk_bytes), whole(text, dialect))
          << testing::PrintToString(text) << ", chunks of " << chunk_bytes;
    }
  }
}

TEST(Chunks, QuotesWithinFieldsDoNotMoveTheCuts) {
  std::string text;
  for (int i = 0; i < 20000; ++i) text += std::to_string(i) + ",7\" vinyl,\"two\nlines\"\n";
  const Rows rows = in_chunks(text, {}, TextChunks::kChunkBytes);
  ASSERT_EQ(rows.size(), 20000U);
  EXPECT_THAT(rows[19999], ElementsAre("39998", "19999", "7\" vinyl", "two\nlines"));
}

TEST(Chunks, AHeaderMaySpanLines) {
  const std::string text = "\r\n\"user\nid\", item \n1,2\n3,4";
  for (size_t chunk_bytes = 1; chunk_bytes < 30; ++chunk_bytes) {
    MemoryStream stream(text);
    TextChunks chunks(stream, "f", {}, Encoding::utf8, chunk_bytes);
    EXPECT_THAT(chunks.header(), ElementsAre("user\nid", "item"));
    EXPECT_EQ(chunks.header_lines(), 3);
    Rows rows;
    TextChunk chunk;
    for (int64_t lines = 3; chunks.next(chunk);) lines = append(chunk.text(), {}, lines, rows);
    EXPECT_EQ(rows, (Rows{{"3", "1", "2"}, {"4", "3", "4"}}));
    EXPECT_EQ(chunks.bytes(), std::ssize(text));
  }
}

TEST(Chunks, EncodingsAreConvertedBeforeTheCut) {
  std::string text = "x,y\n";
  for (int i = 0; i < 100; ++i) text += "\x80,caf\xE9\n";
  for (const size_t chunk_bytes : {size_t{3}, size_t{64}, size_t{1} << 18}) {
    MemoryStream stream(text);
    TextChunks chunks(stream, "f", {}, Encoding::windows_1252, chunk_bytes);
    chunks.header();
    Rows rows;
    TextChunk chunk;
    while (chunks.next(chunk)) append(chunk.text(), {}, 0, rows);
    ASSERT_EQ(rows.size(), 100U);
    for (const auto& row : rows) {
      EXPECT_EQ(row[1], "\xE2\x82\xAC");
      EXPECT_EQ(row[2], "caf\xC3\xA9");
    }
  }
}

TEST(Chunks, AByteOrderMarkSaysUtf8) {
  MemoryStream stream("\xEF\xBB\xBFx,caf\xC3\xA9\n");
  TextChunks chunks(stream, "f", {}, Encoding::latin1);
  EXPECT_THAT(chunks.header(), ElementsAre("x", "caf\xC3\xA9"));
}

TEST(Chunks, HeadersThatAreNone) {
  const auto header = [](std::string_view text) {
    MemoryStream stream(text);
    return TextChunks(stream, "f", {}).header();
  };
  EXPECT_THAT(header("\n\r\n"), ElementsAre());
  for (const std::string_view text :
       {std::string_view("\"a,b\n1,2\n"), std::string_view("a,caf\xE9\n"),
        std::string_view("u\0,\0i\0\n\0", 8), std::string_view("a,b\r1,2\r3,4\r")}) {
    EXPECT_THROW(header(text), DataError) << excerpt(text);
  }
}

TEST(Chunks, ARowWithoutEndIsRefused) {
  const std::string text(100, 'x');
  MemoryStream long_row(text);
  TextChunks chunks(long_row, "f", {",", true, 10}, Encoding::utf8, 4);
  TextChunk chunk;
  EXPECT_THROW(chunks.next(chunk), DataError);
}

}  // namespace
}  // namespace seqfuse::data::data_chunks_test
