// Which tokens a decoder still sees, and where each token's key and value are kept.
//
// Token t (0, 1, 2, ...) sees the first `start` tokens and the newest ones up to itself. A cache
// that is full drops the oldest that are not of the first `start`. Positions are those in the
// cache: what is seen stands at 0, 1, 2, ..., so the query's position stays below the cache's size.
//
//   t = 9, start 2, recent 4:    token     0 1 . . . 5 6 7 8 9
//                                position  0 1       2 3 4 5 6    the query stands at start + recent
//                                slot      0 1 | 5 6 2 3 4        2 + (token - 2) mod 5
//
// Distances among the newest tokens are true distances, so a key that is rotated once, at its true
// index, is right for ever: only the distance to the first tokens is shortened, which a second
// rotation of the query does. No key moves and none is rotated twice.
#pragma once

#include <cstdint>
#include <string>

namespace seqfuse::kv_cache {

enum class Kind {
  full,       // every token; a cache that is full ends the text
  window,     // the newest `recent` and the token itself
  streaming,  // the first `start` as well (StreamingLLM)
  recompute   // as streaming, but all that is seen is computed again from its ids at each token
};

struct Rule {
  Kind kind = Kind::full;
  int64_t start = 0;        // the first tokens, never dropped
  int64_t recent = 0;       // the newest before the token itself
  int64_t prune_every = 1;  // R: the cache grows by R tokens, then drops R at once
  // For experiments: queries and first tokens keep their true distance, which grows without end.
  bool true_distances = false;

  // Throws UsageError: a size below what makes sense.
  static Rule full(int64_t slots);
  static Rule window(int64_t recent, int64_t prune_every = 1);
  static Rule streaming(int64_t start, int64_t recent, int64_t prune_every = 1);
  static Rule recompute(int64_t start, int64_t recent);

  int64_t ring() const { return recent + prune_every; }  // slots of tokens that may be dropped
  int64_t slots() const { return start + ring(); }       // of the whole cache
  int64_t slot(int64_t token) const;
  // Where token t stands in the cache: how many tokens before it it sees.
  int64_t position(int64_t token) const;
  bool sees(int64_t token, int64_t other) const;

  std::string text() const;  // "streaming, 4 + 2000 tokens"
};

}  // namespace seqfuse::kv_cache
