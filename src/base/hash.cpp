#include "base/hash.h"

#include <fmt/format.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cstdio>
#include <memory>
#include <vector>

#include "base/error.h"

namespace seqfuse {
namespace {

std::string show(uint64_t value) {
  return fmt::format("xxh3:{:016x}", value);
}

}  // namespace

uint64_t hash64(std::span<const std::byte> bytes, uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

uint64_t hash64(std::string_view bytes, uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

std::string hash_text(std::string_view bytes) {
  return show(hash64(bytes));
}

struct Hasher::State {
  XXH3_state_t xxh3;
};

Hasher::Hasher() : state_(std::make_unique<State>()) {
  XXH3_64bits_reset(&state_->xxh3);
}
Hasher::~Hasher() = default;
void Hasher::update(std::string_view bytes) {
  XXH3_64bits_update(&state_->xxh3, bytes.data(), bytes.size());
}
std::string Hasher::text() const {
  return show(XXH3_64bits_digest(&state_->xxh3));
}

std::string hash_file(const std::filesystem::path& file) {
  const std::unique_ptr<FILE, int (*)(FILE*)> in(std::fopen(file.c_str(), "rb"), std::fclose);
  if (!in) throw_errno(fmt::format("cannot open {}", file.string()));
  Hasher hasher;
  std::vector<char> buffer(size_t{1} << 20);
  while (const size_t n = std::fread(buffer.data(), 1, buffer.size(), in.get())) {
    hasher.update({buffer.data(), n});
  }
  if (std::ferror(in.get())) throw_errno(fmt::format("cannot read {}", file.string()));
  return hasher.text();
}

}  // namespace seqfuse
