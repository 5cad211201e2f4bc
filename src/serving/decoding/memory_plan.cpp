#include "serving/decoding/memory_plan.h"

#include <c10/core/CachingDeviceAllocator.h>
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/memory.h"
#include "base/progress.h"

namespace seqfuse::serving {
namespace {

std::string bytes(int64_t count) {
  return format_count(static_cast<double>(count)) + "B";
}

std::string texts_in_words(int64_t count) {
  return fmt::format("{} {}", count, count == 1 ? "text" : "texts");
}

}  // namespace

std::optional<int64_t> available_memory(at::Device device) {
  if (device.is_cpu()) return available_host_memory();
  const auto free_and_total = at::getDeviceAllocator(device.type())->getMemoryInfo(device.index());
  return static_cast<int64_t>(free_and_total.first);
}

std::string MemoryPlan::text() const {
  return fmt::format("weights {}, cache {} ({}; {}), at most {} besides", bytes(weights),
                     bytes(cache), rule, texts_in_words(texts), bytes(work));
}

MemoryPlan plan_memory(const models::gpt_neox::Config& config, const kv_cache::Rule& rule,
                       int64_t texts, at::ScalarType dtype,
                       const models::gpt_neox::Storage& storage) {
  const kv_cache::Shape shape{
      .layers = config.num_layers, .heads = config.num_heads, .head_dim = config.head_dim()};
  const bool again = rule.kind == kv_cache::Kind::recompute;  // one cache, refilled every time
  return {.weights = models::gpt_neox::weight_bytes(config, dtype, storage),
          .cache = kv_cache::cache_bytes(rule, shape, again ? 1 : texts, dtype),
          .texts = texts,
          .slots = rule.slots(),
          .rule = rule.text()};
}

void check_memory(const MemoryPlan& plan, int64_t available) {
  if (plan.total() <= available) return;
  const int64_t left = available - plan.weights - plan.work;
  if (left <= 0) {
    throw_error("not enough memory: {} available, the weights alone need {}", bytes(available),
                bytes(plan.weights));
  }
  const int64_t slot = std::max<int64_t>(plan.cache / plan.slots, 1);
  const int64_t text = std::max<int64_t>(plan.cache / plan.texts, 1);
  std::string fits =
      fmt::format("a cache of {} tokens for {}", left / slot, texts_in_words(plan.texts));
  if (left >= text) {
    fits +=
        fmt::format(", or {} with a cache of {} tokens", texts_in_words(left / text), plan.slots);
  }
  throw_error("not enough memory: {} available, {} needed: {}\n  these fit: {}", bytes(available),
              bytes(plan.total()), plan.text(), fits);
}

void check_memory(const MemoryPlan& plan, at::Device device) {
  if (const auto available = available_memory(device)) check_memory(plan, *available);
}

}  // namespace seqfuse::serving
