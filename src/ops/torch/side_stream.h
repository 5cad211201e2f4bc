// Work beside the current stream of a GPU: it may overlap with what is enqueued there meanwhile.
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
  // Where an error came before join(): memory of the current stream may be in use by this one.
  ~SideStream() {
    if (!running_) return;
    try {
      join();
    } catch (const std::exception& error) {
      TORCH_WARN("could not wait for a stream: ", error.what());
    }
  }

  // Enqueues what work enqueues, behind all that the current stream has so far. Results belong to
  // the current stream: allocate them before.
  template <class Work>
  void run(Work&& work) {
    ready_.record(main_);
    ready_.block(side_);
    const c10::cuda::CUDAStreamGuard guard(side_);
    running_ = true;
    work();
  }

  // What follows on the current stream waits for it, also for the memory that it uses, which may be
  // freed from here on.
  void join() {
    if (!running_) return;
    running_ = false;
    done_.record(side_);
    done_.block(main_);
  }

 private:
  // One for each GPU, since cuBLAS keeps a workspace for each stream.
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
