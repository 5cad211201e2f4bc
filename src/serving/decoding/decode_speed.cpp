#include "serving/decoding/decode_speed.h"

#include <torch/cuda.h>

#include <algorithm>
#include <chrono>
#include <span>

#include "base/error.h"
#include "serving/decoding/host_logits.h"
#include "serving/decoding/launch_count.h"
#include "serving/decoding/memory_plan.h"
#include "serving/decoding/sampling.h"
#include "serving/decoding/session.h"

namespace seqfuse::serving {
using at::Tensor;
using models::gpt_neox::Model;
namespace {

constexpr int64_t kWarmUp = 3;  // steps that are not timed; the host counts the launches of one

void wait_for(at::Device device) {
  if (device.is_cuda()) torch::cuda::synchronize(device.index());
}

template <class Work>
double seconds_of(at::Device device, const Work& work) {
  wait_for(device);
  const auto begin = std::chrono::steady_clock::now();
  work();
  wait_for(device);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// The best token of each row of logits [rows, V].
std::vector<int64_t> best_tokens(const Tensor& logits) {
  const Tensor host = on_host(logits);
  std::vector<int64_t> ids;
  for (int64_t row = 0; row < host.size(0); ++row) {
    ids.push_back(next_token(row_of(host, row), {}, {}, 0, 0));
  }
  return ids;
}

template <class Step>
std::vector<double> seconds_of_steps(at::Device device, const Step& step, int64_t steps,
                                     const std::function<bool()>& interrupted) {
  std::vector<double> seconds;
  for (int64_t i = 0; i < steps && !interrupted(); ++i) seconds.push_back(seconds_of(device, step));
  return seconds;
}

// Times steps that the device does while the host looks at the ids of the step before.
std::vector<double> seconds_between(Session& session, int64_t steps,
                                    const std::function<bool()>& interrupted) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> seconds;
  session.step_on();
  Clock::time_point before;
  // The first is not counted: the device may have waited for the host.
  for (int64_t i = 0; i <= steps && !interrupted(); ++i) {
    if (i < steps) session.step_on();
    session.picked(i < steps ? 1 : 0);
    const auto now = Clock::now();
    if (i > 0) seconds.push_back(std::chrono::duration<double>(now - before).count());
    before = now;
  }
  return seconds;
}

}  // namespace

int64_t bytes_of_step(const Model& model, const kv_cache::Rule& rule, int64_t batch,
                      int64_t before) {
  const auto& config = model.config();
  const auto item = static_cast<int64_t>(c10::elementSize(model.dtype()));
  const int64_t token = 2 * config.num_layers * config.hidden_size * item;
  return model.step_weight_bytes() + batch * token * (rule.position(before) + 1);
}

double copy_speed(at::Device device) {
  // The two buffers leave most of the memory to the cache.
  const int64_t most = device.is_cpu() ? 1LL << 28 : 1LL << 30;
  const int64_t bytes =
      std::clamp<int64_t>(available_memory(device).value_or(most) / 8, 1LL << 20, most);
  const Tensor from = at::ones({bytes}, at::TensorOptions(device).dtype(at::kByte));
  Tensor to = at::zeros_like(from);
  double best = 0;
  for (int i = 0; i < 5; ++i) {
    const double seconds = seconds_of(device, [&] { to.copy_(from); });
    best = std::max(best, 2 * static_cast<double>(bytes) / seconds);
  }
  return best;
}

std::optional<DecodeSpeed> measure_decode(const Model& model, const kv_cache::Rule& rule,
                                          const SpeedOptions& options) {
  SEQFUSE_CHECK(options.batch >= 1 && options.cache_length >= 1 && options.steps >= 1,
                "batch {}, cache length {}, {} steps; expected 1 or more of each", options.batch,
                options.cache_length, options.steps);
  const at::Device device = model.device();
  const auto interrupted = [&] { return options.interrupted && options.interrupted(); };
  const int64_t middle = options.cache_length + kWarmUp + options.steps / 2;
  DecodeSpeed speed{.step_bytes = bytes_of_step(model, rule, options.batch, middle),
                    .copy_bytes_per_second = copy_speed(device)};

  std::vector<int64_t> prompt;
  for (int64_t i = 0; i < options.cache_length; ++i) {
    prompt.push_back((i * i + 7) % model.config().vocab_size);
  }
  Session session(model, rule, options.batch, options.step);
  std::vector<int64_t> ids;
  speed.first_token_seconds = seconds_of(device, [&] {
    Tensor logits;
    for (int64_t read = 0; read < options.cache_length; read += kPromptPass) {
      if (interrupted()) return;
      const int64_t tokens = std::min(kPromptPass, options.cache_length - read);
      logits = session.extend(0, std::span(prompt).subspan(read, tokens));
    }
    ids = best_tokens(logits.unsqueeze(0));
  });
  if (ids.empty()) return std::nullopt;
  for (int64_t row = 1; row < options.batch; ++row) session.copy(0, row);
  ids.resize(options.batch, ids.front());

  const std::vector<bool> active(options.batch, true);
  const auto step = [&] {
    const Tensor logits = session.step(ids, active);
    ids = session.picks_on_device() ? session.picked() : best_tokens(logits);
  };
  const bool ahead = session.picks_on_device();  // the last step before the timed ones begins then
  for (int64_t i = 1; i < kWarmUp - (ahead ? 1 : 0); ++i) step();
  speed.launches = count_launches(device, step);
  speed.step_seconds = ahead ? seconds_between(session, options.steps, interrupted)
                             : seconds_of_steps(device, step, options.steps, interrupted);
  if (speed.step_seconds.empty()) return std::nullopt;
  std::ranges::sort(speed.step_seconds);
  return speed;
}

int64_t slots_of_measurement(const SpeedOptions& options) {
  return options.cache_length + kWarmUp + options.steps;
}

}  // namespace seqfuse::serving
