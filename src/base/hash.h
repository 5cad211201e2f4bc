// Content hashes (XXH3): fast, for detecting corruption and change; not for security.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace seqfuse {

uint64_t hash64(std::span<const std::byte> bytes, uint64_t seed = 0);
uint64_t hash64(std::string_view bytes, uint64_t seed = 0);

// The hash of bytes that arrive in pieces.
class Hasher {
 public:
  Hasher();
  ~Hasher();
  void update(std::string_view bytes);
  std::string text() const;  // as hash_text() of all bytes so far

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// "xxh3:0123456789abcdef", of the bytes or of a whole file (read in pieces). Throws IoError.
std::string hash_text(std::string_view bytes);
std::string hash_file(const std::filesystem::path& file);

}  // namespace seqfuse
