#include "serving/decoding/generate.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace seqfuse::serving {
using at::Tensor;
namespace {

// A prompt and its continuation.
struct Text {
  std::vector<int64_t> all;  // the prompt and the new ids
  Generated generated;
  bool active = true;

  void finish(Finish why) {
    generated.finish = why;
    active = false;
  }
};

std::span<const float> row_of(const Tensor& logits, int64_t row) {  // float32 [rows, V], on the CPU
  return {logits.const_data_ptr<float>() + row * logits.size(1),
          static_cast<size_t>(logits.size(1))};
}

void take_token(Text& text, int64_t row, std::span<const float> logits, uint64_t number,
                const GenerateOptions& options, const kv_cache::Rule& rule) {
  const int64_t id =
      next_token(logits, options.sampling, text.all, number, text.generated.ids.size());
  if (std::find(options.eos_ids.begin(), options.eos_ids.end(), id) != options.eos_ids.end()) {
    return text.finish(Finish::eos);
  }
  text.generated.ids.push_back(id);
  if (options.on_token && !options.on_token(row, id)) return text.finish(Finish::stopped);
  if (static_cast<int64_t>(text.generated.ids.size()) == options.max_new_tokens) {
    return text.finish(Finish::length);
  }
  if (rule.kind == kv_cache::Kind::full && static_cast<int64_t>(text.all.size()) == rule.slots()) {
    return text.finish(Finish::cache_full);
  }
  text.all.push_back(id);
}

}  // namespace

const char* name_of(Finish finish) {
  switch (finish) {
    case Finish::length:
      return "length";
    case Finish::eos:
      return "eos";
    case Finish::stopped:
      return "stopped";
    case Finish::cache_full:
      return "cache_full";
  }
  return "?";
}

std::vector<Generated> generate(Session& session, const std::vector<std::vector<int64_t>>& prompts,
                                const GenerateOptions& options, uint64_t first_text) {
  SEQFUSE_CHECK(static_cast<int64_t>(prompts.size()) == session.rows(),
                "{} prompts; the session has {} rows", prompts.size(), session.rows());
  SEQFUSE_CHECK_AS(UsageError, options.max_new_tokens >= 1, "{} new tokens; expected 1 or more",
                   options.max_new_tokens);
  options.sampling.check();
  const auto interrupted = [&] { return options.interrupted && options.interrupted(); };
  const auto on_host = [](const Tensor& logits) {
    return logits.to(at::TensorOptions(at::kCPU).dtype(at::kFloat)).contiguous();
  };
  std::vector<Text> texts(prompts.size());
  for (size_t row = 0; row < prompts.size() && !interrupted(); ++row) {
    texts[row].all = prompts[row];
    const auto index = static_cast<int64_t>(row);
    const Tensor logits = on_host(session.extend(index, prompts[row])).unsqueeze(0);
    take_token(texts[row], index, row_of(logits, 0), first_text + row, options, session.rule());
  }
  const auto any_active = [&] {
    return std::any_of(texts.begin(), texts.end(), [](const Text& text) { return text.active; });
  };
  while (any_active() && !interrupted()) {
    std::vector<int64_t> ids;
    std::vector<bool> active;
    for (const Text& text : texts) {
      ids.push_back(text.active ? text.all.back() : 0);
      active.push_back(text.active);
    }
    const Tensor logits = on_host(session.step(ids, active));
    for (size_t row = 0; row < texts.size(); ++row) {
      if (!texts[row].active) continue;
      const auto index = static_cast<int64_t>(row);
      take_token(texts[row], index, row_of(logits, index), first_text + row, options,
                 session.rule());
    }
  }
  std::vector<Generated> results;
  for (Text& text : texts) results.push_back(std::move(text.generated));
  return results;
}

}  // namespace seqfuse::serving
