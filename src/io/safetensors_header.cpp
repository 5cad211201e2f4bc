#include "io/safetensors_header.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"

namespace seqfuse::io {
using nlohmann::json;
namespace {

constexpr uint64_t kMaxJsonBytes = 100'000'000;  // the format's own limit
constexpr const char* kMetadata = "__metadata__";

[[noreturn]] void fail(const std::string& file, const std::string& why) {
  throw_error<DataError>("{}: not a valid safetensors file: {}", file, why);
}

uint64_t unsigned_of(const json& value, const std::string& file, const std::string& what) {
  if (!value.is_number_unsigned()) {
    fail(file, fmt::format("{} is {}: expected a non-negative integer", what, value.type_name()));
  }
  return value.get<uint64_t>();
}

const json& member(const json& object, const char* key, const std::string& file,
                   const std::string& name) {
  const auto found = object.find(key);
  if (found == object.end()) fail(file, fmt::format("tensor {} has no {}", name, key));
  return *found;
}

SafetensorsEntry parse_entry(const json& value, const std::string& name, uint64_t data_size,
                             const std::string& file) {
  if (!value.is_object()) fail(file, fmt::format("tensor {} is not described by an object", name));
  SafetensorsEntry entry;
  const json& dtype = member(value, "dtype", file, name);
  if (dtype.is_string()) entry.dtype = dtype.get<std::string>();
  const auto item_size = static_cast<uint64_t>(safetensors_item_size(entry.dtype));
  if (item_size == 0) {
    fail(file, fmt::format("tensor {} has an unknown dtype {}", name, entry.dtype));
  }
  const json& shape = member(value, "shape", file, name);
  const json& offsets = member(value, "data_offsets", file, name);
  if (!shape.is_array()) fail(file, fmt::format("shape of {} is not an array", name));
  if (!offsets.is_array() || offsets.size() != 2) {
    fail(file, fmt::format("data_offsets of {} are not two numbers", name));
  }
  uint64_t bytes = item_size;
  for (const json& extent : shape) {
    const uint64_t size = unsigned_of(extent, file, "a size in the shape of " + name);
    // No tensor can be larger than the file, so an overflow is an error.
    if (size > INT64_MAX || __builtin_mul_overflow(bytes, size, &bytes)) {
      fail(file, fmt::format("shape of {} overflows", name));
    }
    entry.shape.push_back(static_cast<int64_t>(size));
  }
  entry.begin = unsigned_of(offsets[0], file, "a data offset of " + name);
  entry.end = unsigned_of(offsets[1], file, "a data offset of " + name);
  if (entry.begin > entry.end || entry.end > data_size) {
    fail(file,
         fmt::format("tensor {} lies at bytes {} to {}, but there are {} bytes of data: truncated?",
                     name, entry.begin, entry.end, data_size));
  }
  if (entry.end - entry.begin != bytes) {
    fail(file, fmt::format("tensor {} has {} bytes, its shape and dtype need {}", name,
                           entry.end - entry.begin, bytes));
  }
  return entry;
}

void check_coverage(const SafetensorsHeader& header, uint64_t data_size, const std::string& file) {
  std::vector<std::pair<uint64_t, uint64_t>> ranges;
  for (const auto& [name, entry] : header.tensors) ranges.emplace_back(entry.begin, entry.end);
  std::sort(ranges.begin(), ranges.end());
  uint64_t covered = 0;
  for (const auto& [begin, end] : ranges) {
    if (begin != covered)
      fail(file, fmt::format("tensors overlap or leave a gap at byte {}", covered));
    covered = end;
  }
  if (covered != data_size) {
    fail(file, fmt::format("tensors end at byte {} of {} bytes of data", covered, data_size));
  }
}

}  // namespace

int64_t safetensors_item_size(std::string_view dtype) {
  static constexpr std::pair<std::string_view, int64_t> sizes[] = {
      {"F64", 8},  {"I64", 8}, {"F32", 4}, {"I32", 4}, {"F16", 2},
      {"BF16", 2}, {"I16", 2}, {"I8", 1},  {"U8", 1},  {"BOOL", 1}};
  for (const auto& [name, size] : sizes) {
    if (name == dtype) return size;
  }
  return 0;
}

uint64_t safetensors_json_length(std::string_view first_bytes, uint64_t file_size,
                                 const std::string& file) {
  if (first_bytes.size() < kSafetensorsLengthBytes || file_size < kSafetensorsLengthBytes) {
    fail(file, fmt::format("it has {} bytes, fewer than the length of its header", file_size));
  }
  uint64_t length = 0;
  for (uint64_t i = 0; i < kSafetensorsLengthBytes; ++i) {
    length |= uint64_t{static_cast<unsigned char>(first_bytes[i])} << (8 * i);
  }
  if (length > kMaxJsonBytes || length > file_size - kSafetensorsLengthBytes) {
    fail(file, fmt::format("its header should have {} bytes, the file has {}", length, file_size));
  }
  return length;
}

SafetensorsHeader parse_safetensors_header(std::string_view text, uint64_t data_size,
                                           const std::string& file) {
  json root;
  try {
    root = json::parse(text);
  } catch (const json::exception& error) {
    fail(file, fmt::format("its header is not JSON: {}", error.what()));
  }
  if (!root.is_object()) fail(file, "its header is not a JSON object");
  SafetensorsHeader header;
  for (const auto& [name, value] : root.items()) {
    if (name != kMetadata) {
      header.tensors[name] = parse_entry(value, name, data_size, file);
      continue;
    }
    if (!value.is_object()) fail(file, "__metadata__ is not an object");
    for (const auto& [key, text_value] : value.items()) {
      if (!text_value.is_string()) fail(file, fmt::format("metadata {} is not a string", key));
      header.metadata[key] = text_value.get<std::string>();
    }
  }
  check_coverage(header, data_size, file);
  return header;
}

std::string format_safetensors_header(const SafetensorsHeader& header) {
  json root = json::object();
  if (!header.metadata.empty()) root[kMetadata] = header.metadata;
  for (const auto& [name, entry] : header.tensors) {
    root[name] = {
        {"dtype", entry.dtype}, {"shape", entry.shape}, {"data_offsets", {entry.begin, entry.end}}};
  }
  std::string text = root.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::string result;
  for (uint64_t i = 0; i < kSafetensorsLengthBytes; ++i) {
    result += static_cast<char>((text.size() >> (8 * i)) & 0xff);
  }
  return result + text;
}

}  // namespace seqfuse::io
