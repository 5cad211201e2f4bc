#include "api/python/language_model.h"

#include <utility>

#include "api/python/dtypes.h"
#include "api/python/errors.h"
#include "base/error.h"
#include "serving/decoding/generate.h"
#include "serving/decoding/memory_plan.h"
#include "serving/decoding/perplexity.h"

namespace seqfuse::api {
using models::gpt_neox::Model;
namespace {

at::ScalarType default_dtype(const std::string& directory, at::Device device) {
  if (device.is_cpu()) return at::kFloat;
  const at::ScalarType stored = models::gpt_neox::stored_dtype(directory);
  return stored == at::kDouble ? at::kFloat : stored;
}

Model load(const std::string& directory, const std::string& dtype_name, at::Device device) {
  const auto config = models::gpt_neox::load_config(directory);
  const at::ScalarType dtype =
      dtype_named(dtype_name, [&] { return default_dtype(directory, device); });
  const auto smallest = kv_cache::Rule::full(1);
  serving::check_memory(serving::plan_memory(config, smallest, 1, dtype), device);
  return {config, models::gpt_neox::load_weights(config, directory, dtype, device)};
}

}  // namespace

LanguageModel::LanguageModel(const std::string& directory, const std::string& dtype,
                             at::Device device) {
  with_python_errors([&] { model_.emplace(load(directory, dtype, device)); });
}

void LanguageModel::check_cache_memory(const kv_cache::Rule& rule, int64_t texts) const {
  serving::MemoryPlan plan = serving::plan_memory(config(), rule, texts, dtype());
  plan.weights = 0;  // they are there already
  serving::check_memory(plan, model_->device());
}

std::tuple<std::vector<std::vector<int64_t>>, std::vector<std::string>> LanguageModel::generate(
    const c10::intrusive_ptr<CacheRule>& rule, const std::vector<std::vector<int64_t>>& prompts,
    int64_t max_new_tokens, const std::vector<int64_t>& eos_ids, double temperature, int64_t top_k,
    double top_p, double repetition_penalty, int64_t seed, int64_t first_text,
    const c10::intrusive_ptr<Watch>& watch) const {
  serving::GenerateOptions options;
  options.max_new_tokens = max_new_tokens;
  options.eos_ids = eos_ids;
  options.sampling = {.temperature = temperature,
                      .top_k = top_k,
                      .top_p = top_p,
                      .repetition_penalty = repetition_penalty,
                      .seed = static_cast<uint64_t>(seed)};
  options.on_token = [&](int64_t row, int64_t id) {
    watch->put(first_text + row, id);
    return !watch->ended(first_text + row);
  };
  options.interrupted = [&] { return watch->stopped(); };
  return with_python_errors([&] {
    const auto texts = static_cast<int64_t>(prompts.size());
    check_cache_memory(rule->rule, texts);
    serving::Session session(*model_, rule->rule, texts);
    std::vector<std::vector<int64_t>> ids;
    std::vector<std::string> finishes;
    const auto number = static_cast<uint64_t>(first_text);
    for (auto& generated : serving::generate(session, prompts, options, number)) {
      ids.push_back(std::move(generated.ids));
      finishes.emplace_back(serving::name_of(generated.finish));
    }
    return std::tuple(std::move(ids), std::move(finishes));
  });
}

std::vector<at::Tensor> LanguageModel::hidden_states(const std::vector<int64_t>& ids) const {
  return with_python_errors([&] {
    const auto count = static_cast<int64_t>(ids.size());
    SEQFUSE_CHECK_AS(UsageError, count >= 1, "hidden states of no tokens; expected 1 or more");
    for (const int64_t id : ids) {
      SEQFUSE_CHECK_AS(DataError, id >= 0 && id < config().vocab_size,
                       "the id {} is not in the model's vocabulary of {}", id, config().vocab_size);
    }
    const auto rule = kv_cache::Rule::full(count);
    check_cache_memory(rule, 1);
    kv_cache::Cache cache = model_->make_cache(rule, 1);
    cache.begin_prefill(0, count);
    std::vector<at::Tensor> states;
    const at::Tensor on_device = at::tensor(ids, at::kLong).to(model_->device()).unsqueeze(0);
    states.push_back(model_->states(on_device, cache, &states));
    for (at::Tensor& state : states) state = state.squeeze(0);
    return states;
  });
}

at::Tensor LanguageModel::losses(const c10::intrusive_ptr<CacheRule>& rule,
                                 const std::vector<int64_t>& ids, int64_t tokens_per_pass,
                                 const c10::intrusive_ptr<Watch>& watch) const {
  return with_python_errors([&] {
    check_cache_memory(rule->rule, 1);
    serving::Session session(*model_, rule->rule, 1);
    const std::vector<double> losses = serving::token_losses(
        session, ids, tokens_per_pass, [&](int64_t) { return !watch->stopped(); });
    return at::tensor(losses, at::kDouble);
  });
}

}  // namespace seqfuse::api
