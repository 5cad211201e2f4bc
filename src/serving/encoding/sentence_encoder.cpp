#include "serving/encoding/sentence_encoder.h"

#include <algorithm>

#include "base/error.h"
#include "serving/encoding/length_batches.h"

namespace seqfuse::serving {
namespace {

using at::Tensor;
using Sentence = std::vector<int64_t>;

void check_sentence(const Sentence& ids, int64_t number, const models::bert::Config& config) {
  const auto tokens = static_cast<int64_t>(ids.size());
  SEQFUSE_CHECK_AS(UsageError, tokens > 0, "sentence {} has no tokens; expected one or more",
                   number);
  SEQFUSE_CHECK_AS(UsageError, tokens <= config.max_position_embeddings,
                   "sentence {} has {} tokens, but the model takes at most {}; shorten it", number,
                   tokens, config.max_position_embeddings);
  for (const int64_t id : ids) {
    SEQFUSE_CHECK_AS(UsageError, id >= 0 && id < config.vocab_size,
                     "sentence {} has the id {}; expected 0 to {}, the model's vocabulary", number,
                     id, config.vocab_size - 1);
  }
}

// [sentences, H], float32 or wider.
Tensor pooled(const Tensor& states, std::span<const int64_t> lengths, Pooling pooling) {
  if (pooling == Pooling::cls) {
    std::vector<int64_t> first{0};
    for (const int64_t length : lengths.first(lengths.size() - 1)) {
      first.push_back(first.back() + length);
    }
    return states.index_select(0, at::tensor(first, at::kLong).to(states.device()));
  }
  const Tensor counts = at::tensor(lengths, at::kLong).to(states.device());
  const Tensor wide = states.scalar_type() == at::kDouble ? states : states.to(at::kFloat);
  return at::segment_reduce(wide, "mean", counts, {}, {}, 0, /*unsafe=*/true);
}

}  // namespace

Tensor SentenceEncoder::encode_batch(std::span<const Sentence> sentences,
                                     std::span<const int64_t> batch) const {
  std::vector<int64_t> ids, lengths;
  for (const int64_t i : batch) {
    const Sentence& sentence = sentences[static_cast<size_t>(i)];
    ids.insert(ids.end(), sentence.begin(), sentence.end());
    lengths.push_back(static_cast<int64_t>(sentence.size()));
  }
  const at::Device device = model_.device();
  const models::bert::Tokens tokens{at::tensor(ids, at::kLong).to(device), Tensor(),
                                    models::bert::positions_of(lengths, device)};
  auto rows = models::bert::Rows::jagged(lengths, mask_, device);
  const models::bert::Program* program = &models::bert::fused();
  ++batches_;
  if (options_.plan != nullptr && options_.plan->why_not_for(lengths).empty()) {
    options_.plan->prepare(rows, device);
    program = &options_.plan->program();
    ++planned_batches_;
  }
  Tensor vectors = pooled(model_.states(tokens, rows, *program), lengths, options_.pooling);
  if (options_.normalize) {
    vectors = vectors.to(at::promote_types(vectors.scalar_type(), at::kFloat));
    vectors = vectors / vectors.norm(2, {-1}, /*keepdim=*/true).clamp_min(1e-30);
  }
  return vectors.to(at::kCPU, at::kFloat);
}

// A plan that no batch would run is a mistake.
void SentenceEncoder::check_plan(std::span<const int64_t> lengths,
                                 std::span<const std::vector<int64_t>> batches) const {
  std::string why = "there is no batch";
  for (const auto& batch : batches) {
    std::vector<int64_t> of_batch;
    for (const int64_t i : batch) of_batch.push_back(lengths[static_cast<size_t>(i)]);
    why = options_.plan->why_not_for(of_batch);
    if (why.empty()) return;
  }
  SEQFUSE_CHECK_AS(UsageError, planned_batches_ > 0 || batches_ > 0,
                   "no batch can run by the plan: {}; leave out the plan, or tune for this shape",
                   why);
}

std::optional<Tensor> SentenceEncoder::encode(std::span<const Sentence> sentences,
                                              int64_t first_number,
                                              const std::function<bool(int64_t)>& on_batch) const {
  std::vector<int64_t> lengths;
  for (const Sentence& sentence : sentences) {
    check_sentence(sentence, first_number + static_cast<int64_t>(lengths.size()), model_.config());
    lengths.push_back(static_cast<int64_t>(sentence.size()));
  }
  const auto batches = batches_by_length(lengths, options_.batch_tokens);
  if (options_.plan != nullptr) check_plan(lengths, batches);
  const Tensor vectors =
      at::empty({static_cast<int64_t>(sentences.size()), model_.config().hidden_size}, at::kFloat);
  int64_t done = 0;
  for (const auto& batch : batches) {
    vectors.index_copy_(0, at::tensor(batch, at::kLong), encode_batch(sentences, batch));
    done += static_cast<int64_t>(batch.size());
    if (on_batch && !on_batch(done)) return std::nullopt;
  }
  return vectors;
}

}  // namespace seqfuse::serving
