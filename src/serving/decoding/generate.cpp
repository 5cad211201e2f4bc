#include "serving/decoding/generate.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "serving/decoding/host_logits.h"

namespace seqfuse::serving {
using at::Tensor;
namespace {

// One prompt and what follows it.
struct Text {
  int64_t row;
  uint64_t number;           // among all texts of a call
  std::vector<int64_t> all;  // the prompt, then the new ids
  Generated generated;
  bool active = true;
};

void finish(Text& text, Finish why, const GenerateOptions& options) {
  text.generated.finish = why;
  text.active = false;
  if (options.on_end) options.on_end(text.row, text.generated);
}

void take_token(Text& text, int64_t id, const GenerateOptions& options,
                const kv_cache::Rule& rule) {
  std::vector<int64_t>& ids = text.generated.ids;
  if (std::find(options.eos_ids.begin(), options.eos_ids.end(), id) != options.eos_ids.end()) {
    return finish(text, Finish::eos, options);
  }
  ids.push_back(id);
  if (options.on_token && !options.on_token(text.row, id)) {
    return finish(text, Finish::stop, options);
  }
  if (static_cast<int64_t>(ids.size()) == options.max_new_tokens) {
    return finish(text, Finish::length, options);
  }
  if (rule.kind == kv_cache::Kind::full && static_cast<int64_t>(text.all.size()) == rule.slots()) {
    return finish(text, Finish::cache_full, options);
  }
  text.all.push_back(id);
}

int64_t pick(const Text& text, std::span<const float> logits, const GenerateOptions& options) {
  return next_token(logits, options.sampling, text.all, text.number, text.generated.ids.size());
}

// Reads the prompt and takes the first token after it, unless interrupted.
void begin(Session& session, Text& text, const GenerateOptions& options,
           const std::function<bool()>& interrupted) {
  const std::span<const int64_t> prompt(text.all);
  Tensor logits;
  size_t read = 0;
  do {
    if (interrupted()) return;
    const size_t tokens = std::min<size_t>(kPromptPass, prompt.size() - read);
    logits = session.extend(text.row, prompt.subspan(read, tokens));
    read += tokens;
  } while (read < prompt.size());
  const Tensor last = on_host(logits).unsqueeze(0);
  take_token(text, pick(text, row_of(last, 0), options), options, session.rule());
}

// True if the GPU may do the step after this one before the host knows the tokens that this one picks. A text
// that this token ends (the end token or a stop string) then has one step too many, on which nothing depends.
bool may_run_on(const std::vector<Text>& texts, const std::vector<bool>& active,
                const GenerateOptions& options, const kv_cache::Rule& rule) {
  return std::all_of(texts.begin(), texts.end(), [&](const Text& text) {
    if (text.active != active[text.row]) return false;
    return !text.active ||
           (std::ssize(text.generated.ids) + 1 < options.max_new_tokens &&
            (rule.kind != kv_cache::Kind::full || std::ssize(text.all) < rule.slots()));
  });
}

}  // namespace

const char* name_of(Finish finish) {
  switch (finish) {
    case Finish::length:
      return "length";
    case Finish::eos:
      return "eos";
    case Finish::stop:
      return "stop";
    case Finish::cache_full:
      return "cache_full";
    case Finish::interrupted:
      return "interrupted";
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
  bool ended = false;  // once interrupted, all texts end
  const std::function<bool()> interrupted = [&] {
    return ended = ended || (options.interrupted && options.interrupted());
  };
  std::vector<Text> texts;
  for (size_t row = 0; row < prompts.size(); ++row) {
    texts.push_back({static_cast<int64_t>(row), first_text + row, prompts[row]});
  }
  for (Text& text : texts) begin(session, text, options, interrupted);
  const auto any_active = [&] {
    return std::any_of(texts.begin(), texts.end(), [](const Text& text) { return text.active; });
  };
  const bool on_device = session.picks_on_device();
  if (on_device && any_active() && !ended) {
    std::vector<std::vector<int64_t>> before;
    for (const Text& text : texts) before.push_back(text.all);
    session.sample_on_device(options.sampling, before, first_text, /*drawn=*/1);
  }
  std::vector<bool> active;  // in the last step
  bool running = false;      // the step for the tokens that were taken last has begun
  while (any_active() && !interrupted()) {
    Tensor logits;
    if (!running) {
      std::vector<int64_t> ids;
      active.clear();
      for (const Text& text : texts) {
        ids.push_back(text.active ? text.all.back() : 0);
        active.push_back(text.active);
      }
      logits = session.step(ids, active);
    }
    std::vector<int64_t> picked;
    if (on_device) {
      running = may_run_on(texts, active, options, session.rule());
      if (running) session.step_on();
      picked = session.picked(running ? 1 : 0);
    } else {
      logits = on_host(logits);
    }
    for (Text& text : texts) {
      if (!text.active) continue;
      const int64_t id =
          on_device ? picked[text.row] : pick(text, row_of(logits, text.row), options);
      take_token(text, id, options, session.rule());
    }
  }
  for (Text& text : texts) {
    if (text.active) finish(text, Finish::interrupted, options);
  }
  std::vector<Generated> results;
  for (Text& text : texts) results.push_back(std::move(text.generated));
  return results;
}

}  // namespace seqfuse::serving
