// Which tokens of a sequence see which: a rule for sequences of any length, and its masks for batches.
//
// Each sequence has the mask of its own length, as if it were alone; sequences never see each other. So
// a sequence's result depends neither on its batch nor on padding.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "masks/mask.h"

namespace seqfuse::masks {

class SequenceMask {
 public:
  SequenceMask() = default;  // every token sees all of its sequence

  // The intersection of all rules. A rule: a kind of `seqfuse mask show`, then numbers by commas, which
  // have that verb's defaults:
  //   none (or full), causal, sliding:SIDE, window:LEFT,RIGHT, dilated:SIDE,STEP, global:TOKENS,
  //   longformer:SIDE,TOKENS, random:BLOCKS,SEED, bigbird:SIDE,TOKENS,BLOCKS,SEED
  // Throws UsageError: another kind, too many or negative numbers.
  static SequenceMask parse(std::span<const std::string> rules);

  bool sees_all() const { return windows_.empty() && others_.empty(); }

  Mask of_length(int64_t tokens) const;
  // Sequences one after the other, as one of all their tokens.
  Mask packed(std::span<const int64_t> lengths) const;
  // A sequence each, padded at its end to `length` tokens, which see nothing and are not seen.
  Mask padded(std::span<const int64_t> lengths, int64_t length) const;

 private:
  using Maker = std::function<Mask(int64_t tokens)>;
  // The keys that each query sees, as intervals [begin, end): `count` for each, some empty.
  struct Intervals {
    int64_t count = 0;
    std::vector<int64_t> bounds;  // [tokens, count, 2]
  };
  // Intervals of others_ for a length; made once.
  std::shared_ptr<const Intervals> intervals(int64_t tokens) const;
  // The intersection of mask and others_. first_rows: where each sequence begins among the queries of all `batch`
  // parts of the mask; first_keys: where its keys begin.
  Mask with_others(Mask mask, std::span<const int64_t> lengths, int64_t batch,
                   std::span<const int64_t> first_rows, std::span<const int64_t> first_keys) const;

  std::vector<Maker> windows_;  // depend on the distance of two tokens alone
  std::vector<Maker> others_;
  struct Cache {
    std::mutex mutex;
    std::map<int64_t, std::shared_ptr<const Intervals>> of_length;
  };
  std::shared_ptr<Cache> cache_ = std::make_shared<Cache>();
};

}  // namespace seqfuse::masks
