// Makes masks of one term. For the files of this folder.
#pragma once

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "masks/mask.h"

namespace seqfuse::masks {

struct MaskMaker {
  static Mask of_term(int64_t batch, int64_t queries, int64_t keys, const Term& term) {
    constexpr int64_t kMost = 1 << 30;
    SEQFUSE_CHECK_AS(UsageError, queries >= 0 && keys >= 0 && queries <= kMost && keys <= kMost,
                     "mask: {} queries and {} keys; expected 0 to {} of each", queries, keys,
                     kMost);
    SEQFUSE_CHECK_AS(UsageError, batch >= 1, "mask: a batch of {}; expected 1 or more", batch);
    Mask mask;
    mask.rule_.terms[0] = term;
    mask.rule_.count = 1;
    mask.rule_.queries = static_cast<int32_t>(queries);
    mask.rule_.keys = static_cast<int32_t>(keys);
    mask.batch_ = batch;
    return mask;
  }

  // The term's data becomes the table, which the mask keeps.
  template <class T>
  static Mask of_table(int64_t batch, int64_t queries, int64_t keys, Term term,
                       std::vector<T> table) {
    auto kept = std::make_shared<const std::vector<T>>(std::move(table));
    term.data = kept->data();
    term.batch_stride = batch > 1 ? static_cast<int64_t>(kept->size()) / batch : 0;
    Mask mask = of_term(batch, queries, keys, term);
    keep(mask, kept);
    return mask;
  }

  // The same with columns, for csr.
  static Mask of_csr(int64_t batch, int64_t queries, int64_t keys, std::vector<int32_t> offsets,
                     std::vector<int32_t> columns) {
    auto kept = std::make_shared<const std::vector<int32_t>>(std::move(columns));
    Mask mask = of_table(batch, queries, keys, {.kind = TermKind::csr, .columns = kept->data()},
                         std::move(offsets));
    keep(mask, kept);
    return mask;
  }

  // The same with entries and words, for block lists.
  static Mask of_listed(int64_t batch, int64_t queries, int64_t keys, std::vector<int32_t> begin,
                        std::vector<int32_t> entries, std::vector<uint64_t> words) {
    auto kept = std::make_shared<const std::vector<int32_t>>(std::move(entries));
    auto kept_words = std::make_shared<const std::vector<uint64_t>>(std::move(words));
    auto kept_begin = std::make_shared<const std::vector<int32_t>>(std::move(begin));
    Mask mask = of_term(batch, queries, keys,
                        {.kind = TermKind::listed,
                         .data = kept_begin->data(),
                         .columns = kept->data(),
                         .words = kept_words->data(),
                         .batch_stride = batch > 1 ? (queries + kBlock - 1) / kBlock : 0});
    keep(mask, kept_begin);
    keep(mask, kept);
    keep(mask, kept_words);
    return mask;
  }

  template <class T>
  static void keep(Mask& mask, const std::shared_ptr<const std::vector<T>>& table) {
    mask.tables_.push_back(
        {std::shared_ptr<const void>(table, table->data()), table->size() * sizeof(T)});
  }

  static Mask combine(const Mask& a, const Mask& b, TermKind how) {
    SEQFUSE_CHECK_AS(
        UsageError, a.queries() == b.queries() && a.keys() == b.keys(),
        "mask: combining one of {} queries and {} keys with one of {} and {}; expected "
        "equal lengths",
        a.queries(), a.keys(), b.queries(), b.keys());
    SEQFUSE_CHECK_AS(UsageError, a.batch_ == b.batch_ || a.batch_ == 1 || b.batch_ == 1,
                     "mask: combining masks of {} and {} sequences; expected equal numbers, or one",
                     a.batch_, b.batch_);
    const int terms = a.rule_.count + b.rule_.count + 1;
    SEQFUSE_CHECK_AS(UsageError, terms <= kMaxTerms,
                     "mask: a combination of {} terms and operators; expected at most {}", terms,
                     kMaxTerms);
    Mask mask = a;
    mask.batch_ = std::max(a.batch_, b.batch_);
    for (int i = 0; i < b.rule_.count; ++i) mask.rule_.terms[mask.rule_.count++] = b.rule_.terms[i];
    mask.rule_.terms[mask.rule_.count++] = {.kind = how};
    mask.tables_.insert(mask.tables_.end(), b.tables_.begin(), b.tables_.end());
    return mask;
  }
};

}  // namespace seqfuse::masks
