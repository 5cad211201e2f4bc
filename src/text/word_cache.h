// Caches the tokens of pieces that a text repeats, for one call of encode.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/hash.h"
#include "text/token_model.h"

namespace seqfuse::text {

class WordCache {
 public:
  explicit WordCache(const TokenModel& model) : model_(model) {}

  // Same result as model.encode.
  void encode(std::string_view piece, std::vector<int32_t>& ids) {
    if (piece.size() > kLongestPiece) {
      model_.encode(piece, ids);
      return;
    }
    if (const auto found = ranges_.find(piece); found != ranges_.end()) {
      const auto begin = known_ids_.begin() + found->second.begin;
      ids.insert(ids.end(), begin, begin + found->second.count);
      return;
    }
    const size_t before = ids.size();
    model_.encode(piece, ids);
    if (ranges_.size() == kMostPieces) return;
    const auto count = static_cast<uint32_t>(ids.size() - before);
    ranges_.emplace(piece, Range{static_cast<uint32_t>(known_ids_.size()), count});
    known_ids_.insert(known_ids_.end(), ids.begin() + static_cast<int64_t>(before), ids.end());
  }

 private:
  static constexpr size_t kLongestPiece = 64;     // bytes
  static constexpr size_t kMostPieces = 1 << 20;  // at most about 150 MB
  struct Range {
    uint32_t begin, count;  // in known_ids_
  };
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view piece) const { return hash64(piece); }
  };

  const TokenModel& model_;
  std::unordered_map<std::string, Range, Hash, std::equal_to<>> ranges_;
  std::vector<int32_t> known_ids_;
};

}  // namespace seqfuse::text
