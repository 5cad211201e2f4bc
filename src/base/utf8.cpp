#include "base/utf8.h"

#include <cstdint>
#include <cstring>

namespace seqfuse {
namespace {

enum class Kind { valid, invalid, cut_off };  // cut_off: the text ends inside a possible character
struct Part {
  Kind kind;
  size_t length;  // of the character, or of the maximal invalid part
};

Part part_at(std::string_view text, size_t offset) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[offset + i]); };
  const uint8_t first = byte(0);
  if (first < 0x80) return {Kind::valid, 1};
  if (first < 0xC2 || first > 0xF4) return {Kind::invalid, 1};
  const size_t length = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  // The second byte's range excludes overlong forms, surrogates and code points above U+10FFFF.
  const uint8_t low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
  const uint8_t high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
  for (size_t i = 1; i < length; ++i) {
    if (offset + i == text.size()) return {Kind::cut_off, i};
    const bool fits = i == 1 ? byte(i) >= low && byte(i) <= high : (byte(i) & 0xC0) == 0x80;
    if (!fits) return {Kind::invalid, i};
  }
  return {Kind::valid, length};
}

// The end of the ASCII run that starts at an offset, or up to 8 bytes before it.
size_t skip_ascii(std::string_view text, size_t offset) {
  while (offset + 8 <= text.size()) {
    uint64_t word;
    std::memcpy(&word, text.data() + offset, 8);
    if ((word & 0x8080808080808080U) != 0) break;
    offset += 8;
  }
  return offset;
}

}  // namespace

size_t find_invalid_utf8(std::string_view text) {
  size_t i = 0;
  while ((i = skip_ascii(text, i)) < text.size()) {
    const Part part = part_at(text, i);
    if (part.kind != Kind::valid) return i;
    i += part.length;
  }
  return i;
}

size_t character_length(std::string_view text) {
  const Part part = part_at(text, 0);
  return part.kind == Kind::valid ? part.length : 0;
}

std::string replace_invalid_utf8(std::string_view text) {
  std::string result;
  Utf8Assembler assembler;
  assembler.push(text, result);
  assembler.finish(result);
  return result;
}

Character character_at(std::string_view text, size_t offset) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[offset + i]); };
  const auto low_bits = [&](size_t i) { return static_cast<char32_t>(byte(i) & 0x3F); };
  const uint8_t first = byte(0);
  if (first < 0x80) return {first, 1};
  if (first < 0xE0) return {(first & 0x1FU) << 6 | low_bits(1), 2};
  if (first < 0xF0) return {(first & 0x0FU) << 12 | low_bits(1) << 6 | low_bits(2), 3};
  return {(first & 0x07U) << 18 | low_bits(1) << 12 | low_bits(2) << 6 | low_bits(3), 4};
}

void append_utf8(std::string& text, char32_t code) {
  const auto append = [&](char32_t byte) { text += static_cast<char>(byte); };
  if (code < 0x80) {
    append(code);
  } else if (code < 0x800) {
    append(0xC0 | code >> 6);
    append(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    append(0xE0 | code >> 12);
    append(0x80 | (code >> 6 & 0x3F));
    append(0x80 | (code & 0x3F));
  } else {
    append(0xF0 | code >> 18);
    append(0x80 | (code >> 12 & 0x3F));
    append(0x80 | (code >> 6 & 0x3F));
    append(0x80 | (code & 0x3F));
  }
}

void Utf8Assembler::push(std::string_view bytes, std::string& out) {
  std::string joined;
  if (!waiting_.empty()) {
    joined = waiting_ + std::string(bytes);
    bytes = joined;
    waiting_.clear();
  }
  size_t i = 0;
  while (i < bytes.size()) {
    const size_t valid = find_invalid_utf8(bytes.substr(i));
    out += bytes.substr(i, valid);
    i += valid;
    if (i == bytes.size()) break;
    const Part part = part_at(bytes, i);
    if (part.kind == Kind::cut_off) {
      waiting_ = bytes.substr(i);
      break;
    }
    out += kReplacementCharacter;
    i += part.length;
  }
}

void Utf8Assembler::finish(std::string& out) {
  if (!waiting_.empty()) out += kReplacementCharacter;
  waiting_.clear();
}

}  // namespace seqfuse
