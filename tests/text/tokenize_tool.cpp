// The tokenizer for tests and benchmarks in other languages.
//
//   tokenize_tool TOKENIZER.json|vocab.txt < RECORDS > RECORDS
//
// A record is a 32-bit little-endian length and its bytes; the first byte is the command:
//   E text    ids, 32 bits each          e text    the same without the post-processor's tokens
//   t text    ids, at most 8
//   D ids     text                       d ids     the same with special tokens
//   S ids     text, decoded id by id: fails if a part is not UTF-8
//   T text    ids, encoded three times; the fastest's seconds of CPU time go to standard error
#include <algorithm>
#include <cstring>
#include <ctime>
#include <iostream>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/utf8.h"
#include "text/model_tokenizer.h"

namespace {
using seqfuse::text::EncodeOptions;
using seqfuse::text::StreamDecoder;
using seqfuse::text::Tokenizer;

std::string bytes_of(const std::vector<int32_t>& ids) {
  return {reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(int32_t)};
}

std::vector<int32_t> ids_of(const std::string& bytes) {
  std::vector<int32_t> ids(bytes.size() / sizeof(int32_t));
  std::memcpy(ids.data(), bytes.data(), ids.size() * sizeof(int32_t));
  return ids;
}

std::string stream(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  StreamDecoder decoder(tokenizer);
  std::string text;
  const auto append = [&](const std::string& part) {
    SEQFUSE_CHECK(seqfuse::find_invalid_utf8(part) == part.size(), "half a character");
    text += part;
  };
  for (const int32_t id : ids) append(decoder.push(id));
  append(decoder.finish());
  return text;
}

std::string timed(const Tokenizer& tokenizer, const std::string& text) {
  std::vector<int32_t> ids;
  double best = 1e300;
  for (int i = 0; i < 3; ++i) {
    const std::clock_t start = std::clock();
    ids = tokenizer.encode(text);
    best = std::min(best, static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
  }
  std::cerr << best << '\n';
  return bytes_of(ids);
}

std::string answer(const Tokenizer& tokenizer, char request, const std::string& content) {
  switch (request) {
    case 'E':
      return bytes_of(tokenizer.encode(content));
    case 'e':
      return bytes_of(tokenizer.encode(content, {.add_special_tokens = false}));
    case 't':
      return bytes_of(tokenizer.encode(content, {.most_tokens = 8}));
    case 'D':
      return tokenizer.decode(ids_of(content));
    case 'd':
      return tokenizer.decode(ids_of(content), false);
    case 'S':
      return stream(tokenizer, ids_of(content));
    case 'T':
      return timed(tokenizer, content);
    default:
      seqfuse::throw_error<seqfuse::UsageError>("unknown request '{}'", request);
  }
}
}  // namespace

int main(int count, char** arguments) try {
  SEQFUSE_CHECK(count == 2, "usage: tokenize_tool TOKENIZER.json|vocab.txt < RECORDS");
  const Tokenizer tokenizer = seqfuse::text::load_tokenizer(arguments[1]);
  uint32_t length = 0;
  while (std::cin.read(reinterpret_cast<char*>(&length), sizeof length)) {
    std::string record(length, '\0');
    SEQFUSE_CHECK(length > 0 && std::cin.read(record.data(), length), "a record is cut off");
    const std::string result = answer(tokenizer, record[0], record.substr(1));
    length = static_cast<uint32_t>(result.size());
    std::cout.write(reinterpret_cast<const char*>(&length), sizeof length) << result;
  }
  return 0;
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
