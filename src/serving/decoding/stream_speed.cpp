#include "serving/decoding/stream_speed.h"

#include <c10/core/CachingDeviceAllocator.h>
#include <torch/cuda.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>

#include "base/error.h"
#include "serving/decoding/session.h"

namespace seqfuse::serving {
using at::Tensor;

int64_t bytes_in_use(at::Device device) {
  if (device.is_cuda()) {
    const auto stats = at::getDeviceAllocator(device.type())->getDeviceStats(device.index());
    return stats.reserved_bytes[0].current;  // of pools of all sizes
  }
  std::ifstream file("/proc/self/statm");
  int64_t size = 0, resident = 0;
  file >> size >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

int64_t part_for(int64_t text_length) {
  constexpr int64_t kAbout = 10'000;
  if (text_length >= kAbout) return kAbout;
  return (kAbout + text_length / 2) / text_length * text_length;
}

std::vector<StreamPart> measure_stream(const models::gpt_neox::Model& model,
                                       const kv_cache::Rule& rule, std::span<const int64_t> ids,
                                       const StreamOptions& options) {
  SEQFUSE_CHECK_AS(DataError, ids.size() >= 2, "the text has {} tokens; at least 2 are needed",
                   ids.size());
  SEQFUSE_CHECK_AS(UsageError, options.part >= 1 && options.tokens >= options.part,
                   "{} tokens in parts of {}; expected a part or more", options.tokens,
                   options.part);
  SEQFUSE_CHECK_AS(UsageError, rule.kind != kv_cache::Kind::full || rule.slots() >= options.tokens,
                   "{} tokens in a full cache of {}: --cache streaming takes any number",
                   options.tokens, rule.slots());
  const auto token = [&](int64_t i) { return ids[i % std::ssize(ids)]; };
  const auto wait = [&] {
    if (model.device().is_cuda()) torch::cuda::synchronize(model.device().index());
  };
  using Clock = std::chrono::steady_clock;
  Session session(model, rule, 1);
  std::vector<StreamPart> parts;
  std::vector<double> seconds;
  seconds.reserve(options.part);  // memory in use is to stay flat
  bool interrupted = false;
  for (int64_t begin = 0; begin < options.tokens && !interrupted; begin += options.part) {
    const int64_t wanted = std::min(options.part, options.tokens - begin);
    Tensor loss = at::zeros({}, at::TensorOptions(model.device()).dtype(at::kDouble));
    seconds.clear();
    while (std::ssize(seconds) < wanted) {
      interrupted = options.interrupted && options.interrupted();
      if (interrupted) break;
      const int64_t at = begin + std::ssize(seconds);
      wait();
      const auto start = Clock::now();
      const Tensor logits = session.step({token(at)}, {true});
      wait();
      seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
      loss -= at::log_softmax(logits.view({-1}), 0, at::kFloat)[token(at + 1)];
    }
    const auto done = std::ssize(seconds);
    if (done == 0) break;
    std::ranges::nth_element(seconds, seconds.begin() + done / 2);
    parts.push_back({.end = begin + done,
                     .tokens = done,
                     .seconds = seconds[done / 2],
                     .loss = loss.item<double>() / static_cast<double>(done),
                     .memory = bytes_in_use(model.device())});
    if (options.on_part) options.on_part(parts.back());
  }
  return parts;
}

StreamSpread spread_of(const std::vector<StreamPart>& parts, const kv_cache::Rule& rule,
                       int64_t part) {
  std::vector<StreamPart> full;
  for (const StreamPart& p : parts) {
    if (p.tokens == part && p.end - part >= rule.slots()) full.push_back(p);
  }
  if (full.empty()) return {};
  const auto range = [&](auto member) {
    const auto [least, most] = std::ranges::minmax(full, {}, member);
    return std::pair(least.*member, most.*member);
  };
  const auto [fastest, slowest] = range(&StreamPart::seconds);
  const auto [lowest, highest] = range(&StreamPart::loss);
  const auto [least, most] = range(&StreamPart::memory);
  return {.parts = std::ssize(full),
          .seconds = (slowest - fastest) / fastest,
          .loss = highest - lowest,
          .memory = most - least};
}

bool StreamSpread::is_flat(at::Device device) const {
  return parts >= 2 && seconds <= 0.02 && loss <= 0.01 &&
         memory <= (device.is_cuda() ? 0 : 1'000'000);
}

}  // namespace seqfuse::serving
