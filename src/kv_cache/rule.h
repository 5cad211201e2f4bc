// Cache rules: the tokens that a decoder still sees, and the slots of their keys and values.
//
// Token t (0, 1, 2, ...) sees the first `start` tokens and the newest ones up to itself. A full
// cache drops the oldest tokens after the first `start`. Positions count visible tokens, 0, 1, 2,
// ..., so the query's position stays below the cache's size.
//
//   t = 9, start 2, recent 4:    token     0 1 . . . 5 6 7 8 9
//                                position  0 1       2 3 4 5 6    the query is at start + recent
//                                slot      0 1 | 5 6 2 3 4        2 + (token - 2) mod 5
//
// Distances among the newest tokens are true distances, so a key rotated once, at its true index,
// stays valid. Only the distance to the first tokens shrinks; a second rotation of the query does
// that. Keys never move and are rotated once.
#pragma once

#include <cstdint>
#include <string>

namespace seqfuse::kv_cache {

enum class Kind {
  full,       // every token; the text ends when the cache is full
  window,     // the newest `recent` and the token itself
  streaming,  // also the first `start` (StreamingLLM)
  recompute   // like streaming, but recomputes all visible tokens from their ids at each token
};

struct Rule {
  Kind kind = Kind::full;
  int64_t start = 0;        // the first tokens, never dropped
  int64_t recent = 0;       // newest tokens before the current one
  int64_t prune_every = 1;  // R: the cache grows by R tokens, then drops R at once
  // For experiments: queries and first tokens keep their true distance, which grows without bound.
  bool true_distances = false;

  // Throws UsageError if a size is too small.
  static Rule full(int64_t slots);
  static Rule window(int64_t recent, int64_t prune_every = 1);
  static Rule streaming(int64_t start, int64_t recent, int64_t prune_every = 1);
  static Rule recompute(int64_t start, int64_t recent);

  int64_t ring() const { return recent + prune_every; }  // slots of droppable tokens
  int64_t slots() const { return start + ring(); }       // of the whole cache
  int64_t slot(int64_t token) const;
  // Position of token t in the cache: the number of tokens that it sees before itself.
  int64_t position(int64_t token) const;
  bool sees(int64_t token, int64_t other) const;

  std::string text() const;  // "streaming, 4 + 2000 tokens"
};

}  // namespace seqfuse::kv_cache
