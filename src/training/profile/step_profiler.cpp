#include "training/profile/step_profiler.h"

#include <c10/util/ApproximateClock.h>
#include <kineto/ActivityType.h>
#include <torch/csrc/autograd/profiler_kineto.h>
#include <torch/cuda.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <memory>
#include <set>
#include <utility>

#ifdef SEQFUSE_HAS_CUDA
#include <c10/cuda/CUDACachingAllocator.h>
#endif

#include "base/error.h"
#include "base/file.h"
#include "base/gpu.h"
#include "base/log.h"
#include "models/hstu/layer_flops.h"
#include "training/device/out_of_memory.h"

namespace seqfuse::training {
namespace {

namespace kineto = torch::autograd::profiler;
using Activities = std::set<torch::profiler::impl::ActivityType>;

// The current time on the profiler's clock.
int64_t now() {
  return c10::getTime();
}

torch::profiler::impl::ProfilerConfig kineto_config() {
  return torch::profiler::impl::ProfilerConfig(torch::profiler::impl::ProfilerState::KINETO);
}

// On a GPU, record only its own activity: recording operators would slow the host down and distort
// the time that the GPU waits for it.
Activities activities_on(at::Device device) {
  using torch::profiler::impl::ActivityType;
  return {device.is_cuda() ? ActivityType::CUDA : ActivityType::CPU};
}

bool is_work(const kineto::KinetoEvent& event, bool on_gpu) {
  using libkineto::ActivityType;
  const auto type = static_cast<ActivityType>(event.activityType());
  if (!on_gpu) return type == ActivityType::CPU_OP;
  return type == ActivityType::CONCURRENT_KERNEL || type == ActivityType::GPU_MEMCPY ||
         type == ActivityType::GPU_MEMSET;
}

std::vector<Work> work_of(const kineto::ProfilerResult& result, bool on_gpu,
                          const std::vector<Span>& pauses) {
  std::vector<Work> work;
  for (const kineto::KinetoEvent& event : result.events()) {
    if (!is_work(event, on_gpu)) continue;
    const Span span{static_cast<int64_t>(event.startNs()), static_cast<int64_t>(event.endNs())};
    const bool in_pause = std::ranges::any_of(pauses, [&](const Span& pause) {
      return pause.begin <= span.begin && span.begin < pause.end;
    });
    if (!in_pause) work.push_back({event.name(), span, event.startThreadId()});
  }
  return work;
}

void reset_peak_memory([[maybe_unused]] at::Device device) {
#ifdef SEQFUSE_HAS_CUDA
  c10::cuda::CUDACachingAllocator::resetPeakStats(device.index());
#endif
}

void read_peak_memory([[maybe_unused]] at::Device device, [[maybe_unused]] StepProfile& profile) {
#ifdef SEQFUSE_HAS_CUDA
  const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(device.index());
  profile.allocated = stats.allocated_bytes[0].peak;  // index 0: all pools together
  profile.reserved = stats.reserved_bytes[0].peak;
#endif
}

}  // namespace

StepProfiler::StepProfiler(const config::TrainerArgs& args, const models::hstu::ModelSpec& spec,
                           at::Device device, std::filesystem::path run)
    : args_(args), spec_(spec), device_(device), run_(std::move(run)) {
  // Kineto looks for a GPU even if none is requested, and reports an error if there is none.
  if (!device.is_cuda()) setenv("KINETO_LOG_LEVEL", "99", /*replace=*/0);
}

StepProfiler::~StepProfiler() {
  drop();
}

template <class Action>
void StepProfiler::unless_it_fails(const Action& action) {
  try {
    action();
  } catch (const std::exception& error) {
    log::warning("train", "the profiler failed, and training goes on without it: {}",
                 message_of(error));
    drop();
  }
}

void StepProfiler::before_step(int64_t step) {
  unless_it_fails([&] {
    if (step >= args_.profile_step_end) return;
    // Start one step early if possible: the profiler's first work takes long.
    if (state_ == State::waiting && step + 1 >= args_.profile_step_start) {
      kineto::prepareProfiler(kineto_config(), activities_on(device_));
      state_ = State::prepared;
    }
    if (state_ == State::prepared && step >= args_.profile_step_start) start(step);
    if (paused_) {
      pauses_.back().end = now();
      paused_ = false;
    }
  });
}

void StepProfiler::start(int64_t step) {
  wait_for_gpu();
  profile_.on_gpu = device_.is_cuda();
  profile_.device = "CPU";
  profile_.first_step = step + 1;
  profile_.layer_flops = 0;
  if (device_.is_cuda()) {
    profile_.device = probe_gpus().gpus.at(device_.index()).name;
    if (spec_.network.dtype_str != config::ComputeType::float32) {
      profile_.peak_tflops = peak_tflops(profile_.device);
    }
    reset_peak_memory(device_);
  }
  kineto::enableProfiler(kineto_config(), activities_on(device_));
  state_ = State::recording;
  span_.begin = now();
}

void StepProfiler::add_batch(const data::Batch& batch) {
  if (state_ != State::recording || !profile_.layer_flops) return;
  const std::optional<double> flops = models::hstu::layer_flops(spec_, batch);
  profile_.layer_flops = flops ? std::optional(*profile_.layer_flops + *flops) : std::nullopt;
}

void StepProfiler::after_step(int64_t step, int64_t tokens, bool pause) {
  if (state_ != State::recording) return;
  profile_.last_step = step;
  profile_.tokens += tokens;
  if (step >= args_.profile_step_end) {
    finish();
  } else if (pause) {
    pauses_.push_back({now(), 0});
    paused_ = true;
  }
}

void StepProfiler::finish() {
  unless_it_fails([&] {
    if (state_ == State::recording) {
      write();
    } else if (state_ != State::done) {
      drop();
      if (run_.empty()) return;
      log::warning(
          "train",
          "TrainerArgs.profile: no step was recorded, as none from "
          "TrainerArgs.profile_step_start = {} up to profile_step_end = {} was trained: give "
          "others by --gin",
          args_.profile_step_start, args_.profile_step_end);
    }
  });
}

void StepProfiler::write() {
  wait_for_gpu();
  span_.end = now();
  if (paused_) pauses_.back().end = span_.end;
  state_ = State::done;
  const std::unique_ptr<kineto::ProfilerResult> result = kineto::disableProfiler();
  if (run_.empty()) return;
  profile_.time = span_.end - span_.begin - covered(pauses_);
  const std::vector<Work> work = work_of(*result, profile_.on_gpu, pauses_);
  if (work.empty()) {
    throw_error("it recorded nothing in steps {} to {}; is another profiler attached?",
                profile_.first_step, profile_.last_step);
  }
  profile_.add_up(work);
  if (profile_.on_gpu) read_peak_memory(device_, profile_);
  log::info("train", "{}", format_profile(profile_));
  write_file_atomically(run_ / "profile.json", to_json(profile_).dump(1) + "\n");
  write_file_atomically(run_ / "trace.json",
                        [&](const std::filesystem::path& file) { result->save(file.string()); });
  log::info("train", "{} and trace.json, which ui.perfetto.dev shows",
            (run_ / "profile.json").string());
}

void StepProfiler::drop() {
  const State state = std::exchange(state_, State::done);
  try {
    // A prepared recording can be ended only after it has begun.
    if (state == State::prepared) kineto::enableProfiler(kineto_config(), activities_on(device_));
    if (state == State::prepared || state == State::recording) kineto::disableProfiler();
  } catch (const std::exception& error) {
    log::warning("train", "the profiler could not be stopped: {}", message_of(error));
  }
}

void StepProfiler::wait_for_gpu() const {
  if (device_.is_cuda()) torch::cuda::synchronize(device_.index());
}

}  // namespace seqfuse::training
