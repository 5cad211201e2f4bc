// A small tokenizer.json whose members tests modify.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "text/byte_alphabet.h"
#include "text/tokenizer.h"

namespace seqfuse::text {

using Json = nlohmann::json;

// Byte-level: the 256 letters (id = byte), then "ab" 256, "abc" 257, "Ġa" 258, then <|end|> 259.
inline Json small_tokenizer() {
  Json vocabulary = Json::object();
  for (int byte = 0; byte < 256; ++byte)
    vocabulary[letter_of_byte(static_cast<uint8_t>(byte))] = byte;
  vocabulary["ab"] = 256;
  vocabulary["abc"] = 257;
  vocabulary["Ġa"] = 258;
  const Json byte_level = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}};
  const Json end = {{"id", 259}, {"content", "<|end|>"}, {"special", true}, {"normalized", false}};
  return {{"version", "1.0"},
          {"added_tokens", Json::array({end})},
          {"normalizer", nullptr},
          {"pre_tokenizer", byte_level},
          {"post_processor", nullptr},
          {"decoder", byte_level},
          {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", {"a b", "ab c", "Ġ a"}}}}};
}

inline Tokenizer made(const Json& json) {
  return Tokenizer::parse(json.dump(), "tokenizer.json");
}

using Ids = std::vector<int32_t>;

template <class Run>
std::string error_of(const Run& run) {
  try {
    run();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace seqfuse::text
