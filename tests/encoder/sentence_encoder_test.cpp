#include "serving/encoding/sentence_encoder.h"

#include <gtest/gtest.h>

#include "serving/encoding/length_batches.h"
#include "tests/encoder/tiny_bert.h"

namespace seqfuse::sentence_encoder_test {
namespace {

using at::Tensor;
using serving::Pooling;
using serving::SentenceEncoder;
using test::TinyBatch;
using test::TinyBert;
using Batches = std::vector<std::vector<int64_t>>;

TEST(LengthBatches, AreBoundedAndByLength) {
  const std::vector<int64_t> lengths{3, 9, 4, 9, 1};
  EXPECT_EQ(serving::batches_by_length(lengths, 10), (Batches{{1}, {3}, {2, 0, 4}}));
  EXPECT_EQ(serving::batches_by_length(lengths, 18), (Batches{{1, 3}, {2, 0, 4}}));
  EXPECT_EQ(serving::batches_by_length(lengths, 1), (Batches{{1}, {3}, {2}, {0}, {4}}));
  EXPECT_TRUE(serving::batches_by_length({}, 10).empty());
}

TEST(SentenceEncoder, PoolsTheStatesOfEachSentenceInItsOrder) {
  const TinyBert tiny;
  const auto model = tiny.model(at::kDouble);
  TinyBatch batch({5, 40, 1, 40, 17}, tiny.vocab_size);
  for (auto& types : batch.types) types.assign(types.size(), 0);
  const auto mask = models::bert::SequenceMask::parse(std::vector<std::string>{"sliding:3"});
  const Tensor states = batch.expected(tiny.oracle(), mask);
  for (const auto pooling : {Pooling::cls, Pooling::mean}) {
    for (const int64_t batch_tokens : {1, 60, 1000}) {
      const SentenceEncoder encoder(model, mask, {pooling, false, batch_tokens});
      const Tensor vectors = *encoder.encode(batch.ids);
      int64_t start = 0;
      for (size_t b = 0; b < batch.lengths.size(); ++b) {
        const Tensor of_sentence = states.narrow(0, start, batch.lengths[b]);
        const Tensor expected = pooling == Pooling::cls ? of_sentence[0] : of_sentence.mean(0);
        EXPECT_LT(test::largest_difference(vectors[static_cast<int64_t>(b)], expected), 1e-6);
        start += batch.lengths[b];
      }
    }
  }
  const Tensor unit = *SentenceEncoder(model, mask, {Pooling::mean, true, 50}).encode(batch.ids);
  EXPECT_LT(test::largest_difference(unit.norm(2, {-1}), at::ones({5})), 1e-6);
}

TEST(SentenceEncoder, StopsWhenAsked) {
  const TinyBert tiny;
  const auto model = tiny.model(at::kFloat);
  const TinyBatch batch({5, 4, 3}, tiny.vocab_size);
  std::vector<int64_t> done;
  const auto result = SentenceEncoder(model, {}, {Pooling::cls, false, 5})
                          .encode(batch.ids, 1, [&](int64_t sentences) {
                            done.push_back(sentences);
                            return sentences < 2;
                          });
  EXPECT_FALSE(result.has_value());
  EXPECT_EQ(done, (std::vector<int64_t>{1, 2}));
}

TEST(SentenceEncoder, WrongSentencesAreNamed) {
  const TinyBert tiny;
  const auto model = tiny.model(at::kFloat);
  const SentenceEncoder encoder(model, {}, {});
  const auto refusal = [&](const std::vector<int64_t>& sentence) -> std::string {
    try {
      encoder.encode(std::vector<std::vector<int64_t>>{{1, 2}, sentence}, 8);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "nothing";
  };
  EXPECT_EQ(refusal({}), "sentence 9 has no tokens; expected one or more");
  EXPECT_EQ(refusal({3, 43}), "sentence 9 has the id 43; expected 0 to 42, the model's vocabulary");
  EXPECT_EQ(refusal(std::vector<int64_t>(201, 1)),
            "sentence 9 has 201 tokens, but the model takes at most 200; shorten it");
}

}  // namespace
}  // namespace seqfuse::sentence_encoder_test
