// The decoder of a tokenizer.json turns tokens back into text: ByteLevel, Replace, ByteFallback, Fuse,
// Strip, and Sequence of them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/json_fields.h"

namespace seqfuse::text {

// One decoding: tokens in, text out as soon as it cannot change any more. Steps may hold text back, such
// as the first bytes of a character.
class DecodingStep {
 public:
  using Emit = std::function<void(std::string_view text)>;
  virtual ~DecodingStep() = default;
  virtual void push(std::string_view token, const Emit& emit) = 0;
  virtual void finish(const Emit& emit) = 0;
};

class Decoder {
 public:
  Decoder();  // tokens with a space between them, as without a member "decoder"
  // The member "decoder", not null. Throws DataError that names a type it does not know.
  explicit Decoder(const JsonField& description);

  // Fresh steps for one decoding: what the first emits goes to the second, and so on.
  std::vector<std::unique_ptr<DecodingStep>> start() const;

 private:
  void add(const JsonField& description, int depth);

  std::vector<std::function<std::unique_ptr<DecodingStep>()>> makers_;
  bool fused_ = false;  // whether the steps so far join all tokens
};

}  // namespace seqfuse::text
