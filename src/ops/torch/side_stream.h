// A second stream whose work may overlap with the current stream's.
#pragma once

#ifdef SEQFUSE_HAS_CUDA
#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <array>
#include <mutex>
#include <optional>

namespace seqfuse::ops {

class SideStream {
 public:
  explicit SideStream(c10::DeviceIndex device)
      : main_(c10::cuda::getCurrentCUDAStream(device)), side_(stream_of(device)) {}
  SideStream(const SideStream&) = delete;
  SideStream& operator=(const SideStream&) = delete;
  // After an error before join(): this stream may still use memory of the current one.
  ~SideStream() {
    if (!running_) return;
    try {
      join();
    } catch (const std::exception& error) {
      TORCH_WARN("could not wait for a stream: ", error.what());
    }
  }

  // Runs work on the second stream, after everything enqueued on the current stream so far. Results
  // belong to the current stream: allocate them before.
  template <class Work>
  void run(Work&& work) {
    ready_.record(main_);
    ready_.block(side_);
    const c10::cuda::CUDAStreamGuard guard(side_);
    running_ = true;
    work();
  }

  // Makes the current stream wait for it. Memory that it uses may be freed from here on.
  void join() {
    if (!running_) return;
    running_ = false;
    done_.record(side_);
    done_.block(main_);
  }

 private:
  // One per GPU, since cuBLAS keeps a workspace per stream.
  static c10::cuda::CUDAStream stream_of(c10::DeviceIndex device) {
    static std::array<std::optional<c10::cuda::CUDAStream>, 64> streams;
    static std::mutex mutex;
    const std::lock_guard lock(mutex);
    auto& stream = streams.at(static_cast<size_t>(device));
    if (!stream) stream = c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device);
    return *stream;
  }

  c10::cuda::CUDAStream main_, side_;
  at::cuda::CUDAEvent ready_, done_;
  bool running_ = false;
};

}  // namespace seqfuse::ops
#endif
