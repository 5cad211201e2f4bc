// Every kind of mask against its definition, written again here element by element.
#include "masks/mask.h"
#include "masks/user_masks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdlib>
#include <functional>
#include <set>

#include "base/error.h"
#include "base/random.h"
#include "tests/masks/decoded.h"

namespace seqfuse::mask_test {
namespace {

using masks::Mask;
using testing::HasSubstr;

// b, position of the query among the keys, query, key.
using Definition = std::function<bool(int64_t b, int64_t p, int64_t q, int64_t k)>;

void expect_orders_and_summaries(const masks::BlockMask& mask, const std::string& what) {
  const auto expect_longest_first = [&](const auto& order, const auto& begin) {
    ASSERT_EQ(order.size() + 1, begin.size()) << what;
    EXPECT_EQ(std::set(order.begin(), order.end()).size(), order.size()) << what;
    const auto length = [&](size_t i) { return begin[order[i] + 1] - begin[order[i]]; };
    for (size_t i = 1; i < order.size(); ++i) EXPECT_GE(length(i - 1), length(i)) << what;
  };
  expect_longest_first(mask.row_order, mask.row_begin);
  expect_longest_first(mask.column_order, mask.column_begin);
  for (size_t i = 0; 2 * i < mask.seen.size(); ++i) {
    uint64_t keys = 0, queries = 0;
    for (size_t q = 0; q < 64; ++q) {
      keys |= mask.bits[i * 64 + q];
      if (mask.bits[i * 64 + q] != 0) queries |= uint64_t{1} << q;
    }
    EXPECT_EQ(mask.seen[2 * i], keys) << what;
    EXPECT_EQ(mask.seen[2 * i + 1], queries) << what;
  }
}

void expect_mask(const Mask& mask, const Definition& definition, const std::string& what) {
  const int64_t queries = mask.queries(), keys = mask.keys();
  std::vector<uint8_t> expected;
  for (int64_t b = 0; b < mask.batch(); ++b)
    for (int64_t q = 0; q < queries; ++q)
      for (int64_t k = 0; k < keys; ++k)
        expected.push_back(definition(b, q + keys - queries, q, k));
  const masks::BlockMask blocks(mask);
  const auto counts = blocks.counts();
  EXPECT_EQ(counts.allowed, std::count(expected.begin(), expected.end(), 1)) << what;
  EXPECT_EQ(counts.elements, static_cast<int64_t>(expected.size())) << what;
  // Compared as wholes: a failure would print megabytes.
  EXPECT_TRUE(mask.dense() == expected) << what << ": dense";
  EXPECT_TRUE(test::decoded(blocks.view()) == expected) << what << ": rows";
  EXPECT_TRUE(test::decoded(blocks.view(), true) == expected) << what << ": columns";
  expect_orders_and_summaries(blocks, what);
}

struct Lengths {
  int64_t queries, keys;
};
const Lengths kLengths[] = {{0, 0},     {1, 1},     {7, 7},     {63, 63},  {64, 64},  {65, 65},
                            {127, 127}, {200, 200}, {1, 130},   {70, 200}, {200, 70}, {0, 65},
                            {65, 0},    {128, 256}, {259, 259}, {200, 390}};

class MaskKinds : public testing::TestWithParam<Lengths> {
 protected:
  const int64_t q_ = GetParam().queries, k_ = GetParam().keys;
  void expect(const Mask& mask, const Definition& definition, const std::string& what) const {
    expect_mask(mask, definition, what + " " + std::to_string(q_) + " x " + std::to_string(k_));
  }
};

INSTANTIATE_TEST_SUITE_P(Lengths, MaskKinds, testing::ValuesIn(kLengths));

TEST_P(MaskKinds, Windows) {
  expect(masks::full(q_, k_), [](auto...) { return true; }, "full");
  expect(masks::causal(q_, k_), [](auto, auto p, auto, auto k) { return k <= p; }, "causal");
  for (const auto& [left, right] : {std::pair{0, 0}, {5, 3}, {64, 64}, {63, 0}, {130, 200}}) {
    expect(
        masks::window(q_, k_, left, right),
        [=](auto, auto p, auto, auto k) { return p - left <= k && k <= p + right; },
        "window " + std::to_string(left));
    for (const int step : {1, 2, 3, 64, 100}) {
      expect(
          masks::dilated(q_, k_, left, right, step),
          [=](auto, auto p, auto, auto k) {
            return p - left <= k && k <= p + right && std::abs(p - k) % step == 0;
          },
          "dilated " + std::to_string(step));
    }
  }
  expect(
      masks::window(q_, k_, int64_t{1} << 40, 2),
      [](auto, auto p, auto, auto k) { return k <= p + 2; }, "a window wider than all");
}

TEST_P(MaskKinds, GlobalTokens) {
  for (const int tokens : {0, 1, 64, 70}) {
    const auto seen = [=](auto, auto p, auto, auto k) {
      return (p >= 0 && p < tokens) || k < tokens;
    };
    expect(masks::global(q_, k_, tokens), seen, "global");
    expect(
        masks::longformer(q_, k_, 10, tokens),
        [=](auto b, auto p, auto q, auto k) { return std::abs(p - k) <= 10 || seen(b, p, q, k); },
        "longformer");
  }
}

TEST_P(MaskKinds, PaddingAndDocuments) {
  const std::vector<int64_t> queries{q_, 0, q_ / 2}, keys{k_ / 3, k_, k_ - k_ / 4};
  const auto exists = [&](auto b, auto, auto q, auto k) { return q < queries[b] && k < keys[b]; };
  const Mask padding = masks::lengths(q_, k_, queries, keys);
  expect(padding, exists, "lengths");
  expect(
      padding & masks::window(q_, k_, 20, 20),
      [&](auto b, auto p, auto q, auto k) { return exists(b, p, q, k) && std::abs(p - k) <= 20; },
      "window and padding");
  // Documents of 30, 0 and 40 tokens as far as there are keys; what is left has none.
  std::vector<int64_t> documents;
  std::vector<int> document_of;
  for (const int64_t length : {30, 0, 40}) {
    const int64_t fits = std::min(length, k_ - static_cast<int64_t>(document_of.size()));
    document_of.insert(document_of.end(), fits, static_cast<int>(documents.size()));
    documents.push_back(fits);
  }
  document_of.resize(static_cast<size_t>(k_), -1);
  expect(
      masks::documents(q_, k_, {documents}),
      [&](auto, auto p, auto, auto k) {
        return p >= 0 && document_of[p] >= 0 && document_of[p] == document_of[k];
      },
      "documents");
}

TEST_P(MaskKinds, MasksOfTheUser) {
  constexpr int64_t kBatch = 2;
  Random random(3);
  for (const uint64_t every : {1, 2, 90}) {
    std::vector<uint8_t> dense(static_cast<size_t>(kBatch * q_ * k_));
    for (auto& element : dense) element = random.below(every) == 0;
    const auto given = [&](auto b, auto, auto q, auto k) {
      return dense[(b * q_ + q) * k_ + k] != 0;
    };
    const Mask mask = masks::from_dense(kBatch, q_, k_, dense);
    expect(mask, given, "dense");
    std::vector<int64_t> offsets, columns;
    for (int64_t row = 0; row < kBatch * q_; ++row) {
      if (row % q_ == 0) offsets.push_back(static_cast<int64_t>(columns.size()));
      for (int64_t k = 0; k < k_; ++k)
        if (dense[static_cast<size_t>(row * k_ + k)] != 0) columns.push_back(k);
      offsets.push_back(static_cast<int64_t>(columns.size()));
    }
    if (q_ == 0) offsets.assign(kBatch, 0);
    const Mask csr = masks::from_csr(kBatch, q_, k_, offsets, columns);
    expect(csr, given, "csr");
    expect(
        csr & masks::causal(q_, k_),
        [&](auto b, auto p, auto q, auto k) { return given(b, p, q, k) && k <= p; },
        "csr and causal");
    // The block structure of the mask, as a mask of the user.
    const masks::BlockMask blocks(mask, 1);
    const auto wide = [](const std::vector<int32_t>& values) {
      return std::vector<int64_t>(values.begin(), values.end());
    };
    const Mask listed = masks::from_blocks(kBatch, q_, k_, wide(blocks.row_begin),
                                           wide(blocks.column), wide(blocks.bitmap), blocks.bits);
    expect(listed, given, "blocks");
    expect(
        listed & masks::dilated(q_, k_, 200, 200, 2),
        [&](auto b, auto p, auto q, auto k) {
          return given(b, p, q, k) && std::abs(p - k) <= 200 && (p - k) % 2 == 0;
        },
        "blocks and dilated");
    expect(
        masks::window(q_, k_, 3, 3) | mask,
        [&](auto b, auto p, auto q, auto k) { return given(b, p, q, k) || std::abs(p - k) <= 3; },
        "window or dense");
  }
  // Three intervals a query, some empty.
  std::vector<int64_t> bounds;
  for (int64_t row = 0; row < kBatch * q_; ++row) {
    int64_t at = 0;
    for (int i = 0; i < 3; ++i) {
      const auto step = [&] { return static_cast<int64_t>(random.below(k_ / 2 + 1)); };
      const int64_t begin = std::min(k_, at + step()), end = std::min(k_, begin + step());
      bounds.push_back(begin);
      bounds.push_back(at = end);
    }
  }
  expect(
      masks::from_intervals(kBatch, q_, k_, 3, bounds),
      [&](auto b, auto, auto q, auto k) {
        const int64_t* row = bounds.data() + (b * q_ + q) * 6;
        return (row[0] <= k && k < row[1]) || (row[2] <= k && k < row[3]) ||
               (row[4] <= k && k < row[5]);
      },
      "intervals");
}

TEST_P(MaskKinds, RandomBlocks) {
  const int64_t blocks = (k_ + 15) / 16;
  const Mask mask = masks::random_blocks(q_, k_, 2, 16, 5);
  // Read from the mask, but it must be so many whole blocks, the same for all queries of a block.
  const auto dense = mask.dense();
  std::vector<std::set<int64_t>> chosen(static_cast<size_t>(blocks));
  for (int64_t q = 0; q < q_; ++q) {
    const int64_t p = q + k_ - q_;
    for (int64_t k = 0; k < k_; ++k)
      if (dense[static_cast<size_t>(q * k_ + k)] != 0) chosen.at(p / 16).insert(k / 16);
  }
  for (int64_t q = 0; q < q_; ++q) {
    const int64_t p = q + k_ - q_;
    if (p < 0) continue;
    EXPECT_EQ(chosen[p / 16].size(), std::min<int64_t>(2, blocks));
  }
  const auto in_chosen = [&](auto, auto p, auto, auto k) {
    return p >= 0 && chosen[p / 16].contains(k / 16);
  };
  expect(mask, in_chosen, "random blocks");
}

TEST(RandomBlocks, AreAFunctionOfTheSeed) {
  const auto blocks_of_row = [](uint64_t seed, int64_t row) {
    const masks::Rule rule = masks::random_blocks(4096, 4096, 3, 64, seed).rule();
    const auto* table = static_cast<const int32_t*>(rule.terms[0].data) + row * 3;
    return std::vector<int32_t>(table, table + 3);
  };
  EXPECT_EQ(blocks_of_row(1, 7), blocks_of_row(1, 7));
  EXPECT_NE(blocks_of_row(1, 7), blocks_of_row(2, 7));
  EXPECT_NE(blocks_of_row(1, 7), blocks_of_row(1, 8));
}

TEST(BlockMask, KnowsFullPartialAndEmptyBlocks) {
  const auto counts = [](const Mask& mask) {
    const auto c = masks::BlockMask(mask).counts();
    return std::vector{c.full, c.partial, c.blocks};
  };
  EXPECT_EQ(counts(masks::full(128, 192)), (std::vector<int64_t>{6, 0, 6}));
  EXPECT_EQ(counts(masks::full(100, 192)), (std::vector<int64_t>{6, 0, 6}));  // queries may end
  EXPECT_EQ(counts(masks::full(128, 190)), (std::vector<int64_t>{4, 2, 6}));  // keys may not
  EXPECT_EQ(counts(masks::causal(256, 256)), (std::vector<int64_t>{6, 4, 16}));
  EXPECT_EQ(counts(masks::window(1024, 1024, 64, 64)), (std::vector<int64_t>{16, 30, 256}));
  // Two halves that only together fill their blocks.
  const Mask halves = masks::causal(256, 256) | masks::window(256, 256, 0, 1 << 20);
  EXPECT_EQ(counts(halves), (std::vector<int64_t>{16, 0, 16}));
  EXPECT_EQ(
      counts(masks::lengths(256, 256, std::vector<int64_t>{64, 0}, std::vector<int64_t>{128})),
      (std::vector<int64_t>{2, 0, 32}));
  // Four windows of 256 tokens.
  const Mask dilated = masks::dilated(1024, 1024, 256, 256, 4);
  EXPECT_EQ(counts(dilated), (std::vector<int64_t>{16, 24, 256}));
  EXPECT_EQ(masks::BlockMask(dilated).step, 4);
  EXPECT_EQ(masks::BlockMask(dilated, 1).counts().partial, 124);
  EXPECT_EQ(masks::BlockMask(dilated & masks::causal(1024, 1024)).step, 4);
  EXPECT_EQ(masks::BlockMask(dilated | masks::dilated(1024, 1024, 9, 9, 6)).step, 2);
  EXPECT_EQ(masks::BlockMask(dilated | masks::causal(1024, 1024)).step, 1);
  EXPECT_EQ(masks::BlockMask(masks::dilated(255, 1024, 9, 9, 4)).step, 1);  // blocks would be empty
  const auto window = masks::BlockMask(masks::window(1024, 1024, 64, 64)).counts();
  EXPECT_EQ(window.allowed, 1024 * 129 - 64 * 65);
  EXPECT_DOUBLE_EQ(window.density(), (1024.0 * 129 - 64 * 65) / (1024.0 * 1024));
  EXPECT_DOUBLE_EQ(window.efficiency(), (1024.0 * 129 - 64 * 65) / (46.0 * 4096));
}

TEST(BlockMask, IsSmallForALongSequence) {
  constexpr int64_t kTokens = 96 * 1024;
  const masks::BlockMask window(masks::longformer(kTokens, kTokens, 256, 64));
  const auto counts = window.counts();
  // The corners of the window are cut off; global rows and columns are counted once.
  int64_t expected = 0;
  for (int64_t q = 0; q < kTokens; ++q) {
    const int64_t low = std::max<int64_t>(q - 256, 0), high = std::min(q + 257, kTokens);
    expected += q < 64 ? kTokens : high - std::max<int64_t>(low, 64) + 64;
  }
  EXPECT_EQ(counts.allowed, expected);
  EXPECT_LT(window.bits.size() * 8 + window.column.size() * 16, size_t{8} << 20);
  // A graph: two edges a row, far apart.
  std::vector<int64_t> offsets{0}, columns;
  for (int64_t q = 0; q < kTokens; ++q) {
    const int64_t a = q * 7919 % kTokens, b = (a + kTokens / 2) % kTokens;
    columns.push_back(std::min(a, b));
    columns.push_back(std::max(a, b));
    offsets.push_back(static_cast<int64_t>(columns.size()));
  }
  EXPECT_EQ(
      masks::BlockMask(masks::from_csr(1, kTokens, kTokens, offsets, columns)).counts().allowed,
      2 * kTokens);
}

TEST(Mask, KnowsWhatIsPlainlyFullOrCausal) {
  const auto plain = [](const Mask& mask) { return masks::BlockMask(mask).plain; };
  EXPECT_EQ(plain(masks::full(70, 80)), masks::Plain::full);
  EXPECT_EQ(plain(masks::window(70, 80, 80, 90)), masks::Plain::full);
  EXPECT_EQ(plain(masks::causal(70, 70)), masks::Plain::causal);
  EXPECT_EQ(plain(masks::causal(70, 80)), masks::Plain::none);
  EXPECT_EQ(plain(masks::window(70, 70, 69, 0)), masks::Plain::none);
  EXPECT_EQ(plain(masks::dilated(70, 70, 70, 70, 2)), masks::Plain::none);
  EXPECT_EQ(plain(masks::causal(70, 70) & masks::full(70, 70)), masks::Plain::none);
}

TEST(Mask, LargerThanMemoryIsNotMadeDense) {
  constexpr int64_t kTokens = int64_t{1} << 30;
  const auto message = [&]() -> std::string {
    try {
      masks::window(kTokens, kTokens, 1, 1).dense();
    } catch (const UsageError& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_THAT(message(),
              HasSubstr("[1, 1073741824, 1073741824] element by element takes 1152921505 "
                        "GB, and this machine has"));
}

TEST(Mask, WithTablesElsewhereIsTheSame) {
  const std::vector<int64_t> offsets{0, 1, 3, 3, 3, 4, 5, 6}, columns{2, 0, 3, 1, 2, 0};
  const Mask mask = (masks::from_csr(2, 3, 4, offsets, columns) |
                     masks::lengths(3, 4, std::vector<int64_t>{1, 2}, std::vector<int64_t>{3, 1})) &
                    masks::random_blocks(3, 4, 1, 2, 5);
  std::vector<std::vector<std::byte>> copies;
  const masks::Rule moved = mask.with_tables([&](const void* data, size_t bytes) {
    const auto* from = static_cast<const std::byte*>(data);
    return copies.emplace_back(from, from + bytes).data();
  });
  EXPECT_EQ(copies.size(), 4);
  for (int i = 0; i < moved.count; ++i) {
    if (mask.rule().terms[i].data == nullptr) continue;
    EXPECT_NE(moved.terms[i].data, mask.rule().terms[i].data);
  }
  const auto dense = mask.dense();
  EXPECT_GT(std::count(dense.begin(), dense.end(), 1), 2);
  for (int64_t i = 0; i < 24; ++i)
    EXPECT_EQ(masks::allowed(moved, i / 12, i / 4 % 3, i % 4), dense[static_cast<size_t>(i)] != 0);
}

TEST(MaskErrors, SayWhatIsWrong) {
  const auto message = [](const std::function<void()>& f) -> std::string {
    try {
      f();
    } catch (const UsageError& error) {
      return error.what();
    }
    return "no error";
  };
  const auto csr = [](std::vector<int64_t> offsets, std::vector<int64_t> columns) {
    masks::from_csr(1, 2, 5, offsets, columns);
  };
  EXPECT_THAT(message([] { masks::window(8, 8, -1, 0); }),
              HasSubstr("mask window: left is -1; expected 0 or more"));
  EXPECT_THAT(message([] { masks::dilated(8, 8, 1, 1, 0); }), HasSubstr("step is 0"));
  EXPECT_THAT(message([] { masks::global(8, 8, -3); }), HasSubstr("tokens is -3"));
  EXPECT_THAT(message([] { masks::full(-1, 8); }), HasSubstr("-1 queries and 8 keys"));
  EXPECT_THAT(message([] { masks::random_blocks(8, 8, 1, 0, 1); }), HasSubstr("block is 0"));
  EXPECT_THAT(message([&] { csr({0, 1}, {0}); }), HasSubstr("2 offsets; expected [1, 3]"));
  EXPECT_THAT(message([&] { csr({0, 2, 1}, {0, 1}); }),
              HasSubstr("offset 2 of sequence 0 is 1; expected 2 to 2"));
  EXPECT_THAT(message([&] { csr({0, 1, 3}, {0, 1}); }), HasSubstr("is 3; expected 1 to 2"));
  EXPECT_THAT(message([&] { csr({0, 0, 2}, {3, 3}); }),
              HasSubstr("query 1 of sequence 0 has column 3 after 3; expected ascending"));
  EXPECT_THAT(message([&] { csr({0, 1, 1}, {5}); }),
              HasSubstr("query 0 of sequence 0 has column 5; expected 0 to 4"));
  const auto blocks = [](std::vector<int64_t> begin, std::vector<int64_t> columns,
                         std::vector<int64_t> bitmaps) {
    masks::from_blocks(1, 65, 200, begin, columns, bitmaps, std::vector<uint64_t>(64));
  };
  EXPECT_THAT(message([&] { blocks({0, 1}, {0}, {0}); }), HasSubstr("2 begins, 1 columns"));
  EXPECT_THAT(message([&] { blocks({0, 2, 2}, {1, 1}, {0, -1}); }),
              HasSubstr("row 0 has column 1; expected ascending ones, 2 to 3"));
  EXPECT_THAT(message([&] { blocks({0, 0, 1}, {4}, {0}); }), HasSubstr("row 1 has column 4"));
  EXPECT_THAT(message([&] { blocks({0, 0, 1}, {3}, {1}); }),
              HasSubstr("row 1 has bitmap 1; expected -1 to 0"));
  const auto intervals = [](std::vector<int64_t> bounds) {
    masks::from_intervals(1, 1, 9, 2, bounds);
  };
  EXPECT_THAT(message([&] { intervals({0, 4, 3, 5}); }),
              HasSubstr("query 0 of sequence 0 has [3, 5) after one that ends at 4"));
  EXPECT_THAT(message([&] { intervals({0, 4, 5, 10}); }), HasSubstr("[5, 10); expected begin <="));
  EXPECT_THAT(message([&] { intervals({0, 4}); }), HasSubstr("2 bounds; expected [1, 1, 2, 2]"));
  EXPECT_THAT(message([] { masks::from_dense(2, 2, 2, std::vector<uint8_t>(4)); }),
              HasSubstr("4 elements; expected [2, 2, 2], 8 elements"));
  EXPECT_THAT(
      message([] { masks::lengths(8, 8, std::vector<int64_t>{9}, std::vector<int64_t>{8}); }),
      HasSubstr("sequence 0 has 9 queries and 8 keys; expected at most 8 and 8"));
  EXPECT_THAT(message([] {
                masks::lengths(8, 8, std::vector<int64_t>{1, 2}, std::vector<int64_t>{1, 2, 3});
              }),
              HasSubstr("2 lengths of queries and 3 lengths of keys"));
  EXPECT_THAT(message([] { masks::documents(8, 8, {{5, 4}}); }),
              HasSubstr("a document of 4 tokens after 5; expected 0 to 3"));
  EXPECT_THAT(message([] { masks::full(8, 8) & masks::full(8, 9); }),
              HasSubstr("8 queries and 8 keys with one of 8 and 9"));
  const Mask two = masks::lengths(8, 8, std::vector<int64_t>{1, 2}, std::vector<int64_t>{8});
  const Mask three = masks::lengths(8, 8, std::vector<int64_t>{1, 2, 3}, std::vector<int64_t>{8});
  EXPECT_THAT(message([&] { two | three; }), HasSubstr("masks of 2 and 3 sequences"));
  EXPECT_THAT(message([] {
                Mask mask = masks::full(8, 8);
                for (int i = 0; i < 9; ++i) mask = mask & masks::causal(8, 8);
              }),
              HasSubstr("17 terms and operators; expected at most 16"));
}

}  // namespace
}  // namespace seqfuse::mask_test
