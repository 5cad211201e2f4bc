// The header of a safetensors file: 8 bytes of little-endian length, then JSON
//   {"__metadata__": {"key": "value"},
//    "NAME": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}}
// then the tensors' bytes, little-endian, row-major, without gaps. Needs no tensor library.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace seqfuse::io {

inline constexpr uint64_t kSafetensorsLengthBytes = 8;

struct SafetensorsEntry {
  std::string dtype;            // a dtype known to safetensors_item_size
  std::vector<int64_t> shape;   // empty: a scalar
  uint64_t begin = 0, end = 0;  // bytes, from the end of the header
};

struct SafetensorsHeader {
  std::map<std::string, SafetensorsEntry> tensors;
  std::map<std::string, std::string> metadata;
};

// Bytes of an element: F64 I64 F32 I32 F16 BF16 I16 I8 U8 BOOL; 0 for anything else.
int64_t safetensors_item_size(std::string_view dtype);

// Length of the JSON, read from the file's first bytes and checked against the file's size.
// file: name for messages. Throws DataError.
uint64_t safetensors_json_length(std::string_view first_bytes, uint64_t file_size,
                                 const std::string& file);

// Parses the JSON and checks every name, dtype, shape and offset against data_size, the number of
// bytes after the header: the tensors must cover them exactly. Throws DataError.
SafetensorsHeader parse_safetensors_header(std::string_view json, uint64_t data_size,
                                           const std::string& file);

// The length and the JSON, padded with spaces to a multiple of 8 bytes.
std::string format_safetensors_header(const SafetensorsHeader& header);

}  // namespace seqfuse::io
