#include "serving/decoding/launch_count.h"

#include <kineto/ActivityType.h>
#include <torch/csrc/autograd/profiler_kineto.h>
#include <torch/cuda.h>

#include <string_view>

namespace seqfuse::serving {
namespace {

namespace kineto = torch::autograd::profiler;

bool is_launch(std::string_view call) {
  return call.find("Launch") != std::string_view::npos || call.starts_with("cudaMemcpy") ||
         call.starts_with("cudaMemset");
}

}  // namespace

std::optional<int64_t> count_launches(at::Device device, const std::function<void()>& work) {
  if (!device.is_cuda()) {
    work();
    return std::nullopt;
  }
  using torch::profiler::impl::ActivityType;
  const torch::profiler::impl::ProfilerConfig config(torch::profiler::impl::ProfilerState::KINETO);
  kineto::prepareProfiler(config, {ActivityType::CUDA});
  kineto::enableProfiler(config, {ActivityType::CUDA});
  try {
    work();
    torch::cuda::synchronize(device.index());
  } catch (...) {
    kineto::disableProfiler();  // else it would record all that follows, and refuse to start again
    throw;
  }
  const auto result = kineto::disableProfiler();
  int64_t launches = 0;
  for (const kineto::KinetoEvent& event : result->events()) {
    const auto type = static_cast<libkineto::ActivityType>(event.activityType());
    const bool call = type == libkineto::ActivityType::CUDA_RUNTIME ||
                      type == libkineto::ActivityType::CUDA_DRIVER;
    if (call && is_launch(event.name())) ++launches;
  }
  return launches > 0 ? std::optional(launches) : std::nullopt;
}

}  // namespace seqfuse::serving
