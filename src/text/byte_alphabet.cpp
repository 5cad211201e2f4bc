#include "text/byte_alphabet.h"

#include <array>

#include "base/utf8.h"

namespace seqfuse::text {
namespace {

constexpr bool stands_for_itself(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}
constexpr int kOthers = 68;  // the other bytes
constexpr char32_t kFirstOther = 0x100;

constexpr std::array<uint8_t, kOthers> other_bytes() {
  std::array<uint8_t, kOthers> bytes{};
  int count = 0;
  for (int byte = 0; byte < 256; ++byte) {
    if (!stands_for_itself(byte)) bytes[count++] = static_cast<uint8_t>(byte);
  }
  return bytes;
}
constexpr std::array<uint8_t, kOthers> kOtherBytes = other_bytes();

}  // namespace

std::string letter_of_byte(uint8_t byte) {
  char32_t letter = byte;
  for (int i = 0; i < kOthers; ++i) {
    if (kOtherBytes[i] == byte) letter = kFirstOther + i;
  }
  std::string result;
  append_utf8(result, letter);
  return result;
}

std::optional<std::string> bytes_of_letters(std::string_view token) {
  std::string bytes;
  for (size_t i = 0; i < token.size();) {
    const auto [letter, length] = character_at(token, i);
    i += length;
    if (letter < kFirstOther && stands_for_itself(static_cast<int>(letter))) {
      bytes += static_cast<char>(letter);
    } else if (letter >= kFirstOther && letter < kFirstOther + kOthers) {
      bytes += static_cast<char>(kOtherBytes[letter - kFirstOther]);
    } else {
      return std::nullopt;
    }
  }
  return bytes;
}

}  // namespace seqfuse::text
