// The decoder of a tokenizer.json, which turns tokens into text: WordPiece, ByteLevel, Replace,
// ByteFallback, Fuse, Strip, and Sequence of them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/json_fields.h"

namespace seqfuse::text {

// One decoding: tokens in, text out as soon as it is final. Steps may hold text back, such as the
// first bytes of a character.
class DecodingStep {
 public:
  using Emit = std::function<void(std::string_view text)>;
  virtual ~DecodingStep() = default;
  virtual void push(std::string_view token, const Emit& emit) = 0;
  virtual void finish(const Emit& emit) = 0;
};

class Decoder {
 public:
  Decoder();  // joins tokens by spaces, as without a member "decoder"
  // description: the member "decoder", not null. Throws DataError that names an unknown type.
  explicit Decoder(const JsonField& description);

  // New steps for one decoding: each emits to the next.
  std::vector<std::unique_ptr<DecodingStep>> start() const;

 private:
  void add(const JsonField& description, int depth);

  std::vector<std::function<std::unique_ptr<DecodingStep>()>> makers_;
  bool fused_ = false;  // the steps so far join all tokens
};

}  // namespace seqfuse::text
