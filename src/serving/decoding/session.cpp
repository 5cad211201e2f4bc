#include "serving/decoding/session.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "models/gpt_neox/gpu_step.h"
#include "ops/kernels/decode/step_ends.h"

namespace seqfuse::serving {
using at::Tensor;
using kv_cache::Kind;

Session::Session(const models::gpt_neox::Model& model, const kv_cache::Rule& rule, int64_t rows,
                 const models::gpt_neox::StepOptions& options)
    : model_(model),
      rule_(rule),
      rows_(rows),
      options_(options),
      picks_on_device_((options.graph || options.own_kernels) &&
                       models::gpt_neox::GpuStep::why_not(model, rule, rows).empty()) {
  SEQFUSE_CHECK(rows >= 1, "a session of {} rows", rows);
  const bool again = rule.kind == Kind::recompute;
  cache_.emplace(
      model.make_cache(again ? kv_cache::Rule::full(rule.slots()) : rule, again ? 1 : rows));
  if (again) seen_.resize(rows);
}

void Session::check_ids(std::span<const int64_t> ids) const {
  const int64_t vocabulary = model_.config().vocab_size;
  for (const int64_t id : ids) {
    SEQFUSE_CHECK_AS(DataError, id >= 0 && id < vocabulary,
                     "the id {} is not in the model's vocabulary of {}", id, vocabulary);
  }
}

Tensor Session::on_device(std::span<const int64_t> ids) const {
  check_ids(ids);
  return at::tensor(at::ArrayRef<int64_t>(ids.data(), ids.size()), at::kLong).to(model_.device());
}

// Recomputes all visible tokens from the start; positions restart at 0.
Tensor Session::recompute(int64_t row, int64_t id) {
  std::vector<int64_t>& seen = seen_[row];
  if (static_cast<int64_t>(seen.size()) == rule_.slots()) seen.erase(seen.begin() + rule_.start);
  seen.push_back(id);
  cache_->clear(0);
  Tensor states;
  const std::span<const int64_t> all(seen);
  const auto count = static_cast<int64_t>(seen.size());
  for (int64_t begin = 0; begin < count; begin += cache_->longest_prefill()) {
    const int64_t tokens = std::min(cache_->longest_prefill(), count - begin);
    cache_->begin_prefill(0, tokens);
    states = model_.states(on_device(all.subspan(begin, tokens)).unsqueeze(0), *cache_);
  }
  return model_.logits(states[0][-1]);
}

Tensor Session::extend(int64_t row, std::span<const int64_t> ids, bool all) {
  SEQFUSE_CHECK_AS(DataError, !ids.empty(), "there is nothing to read: the prompt has no tokens");
  const Tensor on_model = on_device(ids);
  std::vector<Tensor> logits;
  if (rule_.kind == Kind::recompute) {
    for (const int64_t id : ids) logits.push_back(recompute(row, id));
    return all ? at::stack(logits) : logits.back();
  }
  const auto count = static_cast<int64_t>(ids.size());
  Tensor states;
  for (int64_t begin = 0; begin < count; begin += cache_->longest_prefill()) {
    const int64_t tokens = std::min(cache_->longest_prefill(), count - begin);
    cache_->begin_prefill(row, tokens);
    states = model_.states(on_model.narrow(0, begin, tokens).unsqueeze(0), *cache_)[0];
    if (all) logits.push_back(model_.logits(states));
  }
  return all ? at::cat(logits) : model_.logits(states[-1]);
}

void Session::copy(int64_t from, int64_t to) {
  if (rule_.kind == Kind::recompute) {
    seen_[to] = seen_[from];
  } else {
    cache_->copy(from, to);
  }
}

Tensor Session::step(const std::vector<int64_t>& ids, const std::vector<bool>& active) {
  SEQFUSE_CHECK(static_cast<int64_t>(ids.size()) == rows_ && active.size() == ids.size(),
                "a step of {} ids and {} flags; the session has {} rows", ids.size(), active.size(),
                rows_);
  if (rule_.kind == Kind::recompute) {
    std::vector<Tensor> logits;
    for (int64_t row = 0; row < rows_; ++row) {
      logits.push_back(active[row] ? recompute(row, ids[row])
                                   : at::zeros({model_.config().vocab_size},
                                               at::dtype(model_.dtype()).device(model_.device())));
    }
    return at::stack(logits);
  }
  if (picks_on_device_) {
    check_ids(ids);
    if (!graph_) make_graph({{}, {}, {}, 0, model_.config().vocab_size, model_.device()});
    graph_->run(ids, active);
    active_ = active;
    return graph_->logits();
  }
  const Tensor on_model = on_device(ids).unsqueeze(1);
  cache_->begin_step(active);
  return model_.logits(model_.states(on_model, *cache_).select(1, 0));
}

void Session::make_graph(DeviceSampling sampling) {
  graph_ = std::make_unique<StepGraph>(model_, *cache_, std::move(sampling), options_);
}

void Session::sample_on_device(const SamplingOptions& options,
                               const std::vector<std::vector<int64_t>>& before, uint64_t first_text,
                               uint64_t drawn) {
  SEQFUSE_CHECK(picks_on_device_ && static_cast<int64_t>(before.size()) == rows_,
                "sampling of {} texts on the device; the session has {} and picks {}",
                before.size(), rows_, picks_on_device_ ? "there" : "on the host");
  std::vector<uint64_t> texts(before.size());
  std::iota(texts.begin(), texts.end(), first_text);
  make_graph({options, texts, before, drawn, model_.config().vocab_size, model_.device()});
}

void Session::step_on() {
  SEQFUSE_CHECK(graph_ != nullptr && !active_.empty(), "no step has picked a token");
  graph_->run_on();
}

std::vector<int64_t> Session::picked(int64_t back) const {
  SEQFUSE_CHECK(graph_ != nullptr && !active_.empty(), "no step has picked a token");
  const std::vector<int64_t>& ids = graph_->picked(back);
  for (int64_t row = 0; row < rows_; ++row) {
    if (active_[row] && ids[row] < 0) refuse_nan(ops::token_of_nan(ids[row]));
  }
  return ids;
}

}  // namespace seqfuse::serving
