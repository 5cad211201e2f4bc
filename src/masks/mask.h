// Masks on the host: rules with the tables they refer to, checked when they are made.
//
//   const Mask local = window(1024, 1024, 64, 64) & lengths(1024, 1024, pairs);
//
// Errors: UsageError, which names what was given and what is expected.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "masks/rule.h"

namespace seqfuse::masks {

// Copies share their tables, which never change.
class Mask {
 public:
  const Rule& rule() const { return rule_; }
  int64_t queries() const { return rule_.queries; }
  int64_t keys() const { return rule_.keys; }
  // The number of sequences with masks of their own; 1: one mask, for a batch of any size.
  int64_t batch() const { return batch_; }

  // The rule with its tables in other memory: put copies a table's bytes and returns where they are.
  Rule with_tables(const std::function<const void*(const void* data, size_t bytes)>& put) const;

  // Element by element, for small tests and for other libraries: [batch, queries, keys]. UsageError
  // if that is more than the machine's memory.
  std::vector<uint8_t> dense() const;

  // Both; either. The lengths must be equal, and the batches, unless one is 1.
  friend Mask operator&(const Mask& a, const Mask& b);
  friend Mask operator|(const Mask& a, const Mask& b);

 private:
  friend struct MaskMaker;
  Rule rule_;
  int64_t batch_ = 1;
  struct Table {
    std::shared_ptr<const void> data;
    size_t bytes;
  };
  std::vector<Table> tables_;  // that the rule's terms point to
};

Mask full(int64_t queries, int64_t keys);
Mask causal(int64_t queries, int64_t keys);
// Keys p - left to p + right, both included; kUnlimited: no limit. left, right >= 0.
Mask window(int64_t queries, int64_t keys, int64_t left, int64_t right);
// Of such a window every step-th key, counted from p. step >= 1.
Mask dilated(int64_t queries, int64_t keys, int64_t left, int64_t right, int64_t step);
// The first `tokens` positions see all keys, and all queries see these keys.
Mask global(int64_t queries, int64_t keys, int64_t tokens);
// window(left = right = side) | global(tokens).
Mask longformer(int64_t queries, int64_t keys, int64_t side, int64_t tokens);
// Each block of positions sees `count` different blocks of keys, drawn from seed. The same on every
// machine.
Mask random_blocks(int64_t queries, int64_t keys, int64_t count, int64_t block, uint64_t seed);
// longformer | random_blocks with blocks of 64.
Mask bigbird(int64_t queries, int64_t keys, int64_t side, int64_t tokens, int64_t count,
             uint64_t seed);
// Padding: sequence b has the first query_lengths[b] queries and key_lengths[b] keys; others see
// nothing and are not seen. One element: of every sequence.
Mask lengths(int64_t queries, int64_t keys, std::span<const int64_t> query_lengths,
             std::span<const int64_t> key_lengths);
// Documents one after the other, of document_lengths[b] tokens: a token sees its own document.
// What is left at the end of a sequence sees nothing. One element: for every sequence.
Mask documents(int64_t queries, int64_t keys,
               const std::vector<std::vector<int64_t>>& document_lengths);

}  // namespace seqfuse::masks
