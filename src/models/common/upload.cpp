#include "models/common/upload.h"

#include <algorithm>

#ifdef SEQFUSE_HAS_CUDA
#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <map>
#include <mutex>
#endif

namespace seqfuse::models {
namespace {

#ifdef SEQFUSE_HAS_CUDA
// One copy stream per device, created on first use.
c10::cuda::CUDAStream copy_stream(c10::DeviceIndex device) {
  static std::mutex mutex;
  static std::map<c10::DeviceIndex, c10::cuda::CUDAStream> streams;
  const std::lock_guard lock(mutex);
  const auto found = streams.find(device);
  if (found != streams.end()) return found->second;
  return streams.emplace(device, c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device))
      .first->second;
}
#endif

at::Tensor to_device(const at::Tensor& host, at::Device device) {
#ifdef SEQFUSE_HAS_CUDA
  if (device.is_cuda()) {
    const c10::cuda::CUDAStream copies = copy_stream(device.index());
    const c10::cuda::CUDAStream current = c10::cuda::getCurrentCUDAStream(device.index());
    at::Tensor sent;
    {
      const c10::cuda::CUDAStreamGuard guard(copies);
      sent = host.to(device, /*non_blocking=*/true);
    }
    at::cuda::CUDAEvent done;
    done.record(copies);
    done.block(current);
    sent.record_stream(current);
    return sent;
  }
#endif
  return host.to(device);
}

}  // namespace

void Upload::add(const std::vector<int64_t>& values, at::Tensor& tensor) {
  parts_.emplace_back(&values, &tensor);
}

at::Tensor Upload::send() {
  int64_t total = 0;
  for (const auto& [values, tensor] : parts_) total += std::ssize(*values);
  const at::Tensor host =
      at::empty({total}, at::TensorOptions().dtype(at::kLong).pinned_memory(device_.is_cuda()));
  int64_t* to = host.mutable_data_ptr<int64_t>();
  for (const auto& [values, tensor] : parts_) to = std::copy(values->begin(), values->end(), to);
  const at::Tensor sent = to_device(host, device_);
  int64_t begin = 0;
  for (const auto& [values, tensor] : parts_) {
    *tensor = sent.slice(0, begin, begin + std::ssize(*values));
    begin += std::ssize(*values);
  }
  parts_.clear();
  return sent;
}

}  // namespace seqfuse::models
