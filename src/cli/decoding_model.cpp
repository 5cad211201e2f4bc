#include "cli/decoding_model.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "base/log.h"
#include "base/progress.h"
#include "serving/decoding/memory_plan.h"
#include "serving/decoding/random_model.h"
#include "training/device/device.h"

namespace seqfuse::cli {
using kv_cache::Rule;
using models::gpt_neox::Config;
using models::gpt_neox::Model;
namespace {

at::ScalarType dtype_named(const std::string& name) {
  if (name == "float64") return at::kDouble;
  if (name == "float32") return at::kFloat;
  if (name == "float16") return at::kHalf;
  if (name == "bfloat16") return at::kBFloat16;
  if (name == "int8") return at::kChar;
  return at::ScalarType::Undefined;
}

at::ScalarType choose_dtype(const DecodingFlags& flags, at::Device device) {
  if (flags.dtype != "auto") return dtype_named(flags.dtype);
  if (device.is_cpu()) return at::kFloat;
  if (!flags.shape.empty()) return at::kHalf;
  const at::ScalarType stored = models::gpt_neox::stored_dtype(flags.model);
  return stored == at::kDouble ? at::kFloat : stored;
}

// auto: 16-bit weights stay as they are in the file beside float32, with the same results.
models::gpt_neox::Storage choose_storage(const DecodingFlags& flags, at::ScalarType dtype,
                                         at::Device device) {
  models::gpt_neox::Storage storage;
  if (device.is_cpu() && dtype == at::kFloat && flags.shape.empty()) {
    const at::ScalarType stored = models::gpt_neox::stored_dtype(flags.model);
    if (stored != at::kDouble) {
      storage = {.linear = stored, .embedding = stored, .as_in_file = flags.weights == "auto"};
    }
  }
  if (flags.weights != "auto") storage.linear = dtype_named(flags.weights);
  models::gpt_neox::check_storage(storage, dtype, device);
  return storage;
}

std::string describe(at::ScalarType dtype, const models::gpt_neox::Storage& storage) {
  const auto linear = storage.linear;
  if (linear == at::ScalarType::Undefined || linear == dtype) return c10::toString(dtype);
  return fmt::format("{} with {} weights", c10::toString(dtype),
                     linear == at::kChar ? "int8" : c10::toString(linear));
}

}  // namespace

void DecodingFlags::add_to(CLI::App& app) {
  app.add_option("MODEL", model, "folder of a Hugging Face GPT-NeoX (Pythia, ...)")
      ->required()
      ->check(kPath);
  app.add_option("--cache", cache, "full, window, streaming or recompute")
      ->check(CLI::IsMember({"full", "window", "streaming", "recompute"}))
      ->capture_default_str();
  app.add_option("--start", start, "streaming: number of first tokens to keep")
      ->check(whole_number(0))
      ->capture_default_str();
  app.add_option("--recent", recent, "number of newest tokens to keep (default: as trained)")
      ->check(whole_number(1));
  app.add_option("--prune-every", prune_every, "number of old tokens to drop at a time")
      ->check(whole_number(1))
      ->capture_default_str();
  app.add_option("--cache-size", cache_size, "full: capacity in tokens (default: as trained)")
      ->check(whole_number(1));
  app.add_option("--dtype", dtype, "float32, float16, bfloat16, float64 (auto: float32 on a CPU)")
      ->check(CLI::IsMember({"auto", "float32", "float16", "bfloat16", "float64"}))
      ->capture_default_str();
  app.add_option("--weights", weights, "float32, float16, bfloat16 or int8 (auto: as in the file)")
      ->check(CLI::IsMember({"auto", "float32", "float16", "bfloat16", "int8"}))
      ->capture_default_str();
  app.add_option("--device", device, "auto, cpu or cuda")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}))
      ->capture_default_str();
}

int64_t full_cache_size(const DecodingFlags& flags, const Config& config) {
  return flags.cache_size > 0 ? flags.cache_size : config.max_position_embeddings;
}

Rule cache_rule(const DecodingFlags& flags, const Config& config, int64_t longest) {
  if (flags.cache == "full") {
    return Rule::full(std::min(longest, full_cache_size(flags, config)));
  }
  const int64_t start = flags.cache == "window" ? 0 : flags.start;
  const int64_t trained = config.max_position_embeddings - start - flags.prune_every;
  const int64_t recent = flags.recent > 0 ? flags.recent : std::max<int64_t>(trained, 1);
  if (flags.cache == "window") return Rule::window(recent, flags.prune_every);
  if (flags.cache == "streaming") return Rule::streaming(start, recent, flags.prune_every);
  SEQFUSE_CHECK_AS(UsageError, flags.prune_every == 1,
                   "--prune-every is {} with --cache recompute, which keeps nothing to prune",
                   flags.prune_every);
  return Rule::recompute(start, recent);
}

Config open_config(const DecodingFlags& flags) {
  return flags.shape.empty() ? models::gpt_neox::load_config(flags.model)
                             : serving::named_shape(flags.shape);
}

Model open_model(const DecodingFlags& flags, const char* verb, const Config& config,
                 const Rule& rule, int64_t texts) {
  const at::Device device = training::choose_device(flags.device, "");
  const at::ScalarType dtype = choose_dtype(flags, device);
  const models::gpt_neox::Storage storage = choose_storage(flags, dtype, device);
  const serving::MemoryPlan plan = serving::plan_memory(config, rule, texts, dtype, storage);
  log::info(verb, "{} on {}: {}", describe(dtype, storage), device.str(), plan.text());
  serving::check_memory(plan, device);
  if (flags.shape.empty()) {
    return {config, models::gpt_neox::load_weights(config, flags.model, dtype, device, storage)};
  }
  return {config,
          models::gpt_neox::make_weights(config, serving::random_tensors(config, dtype, device),
                                         dtype, device, flags.shape, storage)};
}

std::vector<int64_t> parse_ids(const std::string& text) {
  std::vector<int64_t> ids;
  std::string_view rest = text;
  while (!rest.empty()) {
    const size_t comma = std::min(rest.find(','), rest.size());
    const std::string_view word = rest.substr(0, comma);
    int64_t id = 0;
    const auto [stop, error] = std::from_chars(word.data(), word.data() + word.size(), id);
    SEQFUSE_CHECK_AS(UsageError, error == std::errc() && stop == word.data() + word.size(),
                     "--ids has '{}'; expected ids with commas between them, such as 5,34,63",
                     word);
    ids.push_back(id);
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  SEQFUSE_CHECK_AS(UsageError, !ids.empty(), "--ids is empty; a prompt needs at least one token");
  return ids;
}

}  // namespace seqfuse::cli
