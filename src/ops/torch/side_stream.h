// Work beside the current stream of a GPU: it may overlap with what is enqueued there meanwhile.
#pragma once

#ifdef SEQFUSE_HAS_CUDA
#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <array>
#include <optional>

namespace seqfuse::ops {

class SideStream {
 public:
  explicit SideStream(c10::DeviceIndex device)
      : main_(c10::cuda::getCurrentCUDAStream(device)), side_(stream_of(device)) {}
  SideStream(const SideStream&) = delete;
  SideStream& operator=(const SideStream&) = delete;

  // Enqueues what work enqueues, behind all that the current stream has so far.
  template <class Work>
  void run(Work&& work) {
    ready_.record(main_);
    ready_.block(side_);
    const c10::cuda::CUDAStreamGuard guard(side_);
    work();
  }

  // What follows on the current stream waits for it, also for the memory that it uses: tensors of
  // either stream may be freed from here on.
  void join() {
    done_.record(side_);
    done_.block(main_);
  }

 private:
  // One for each GPU, since cuBLAS keeps a workspace for each stream.
  static c10::cuda::CUDAStream stream_of(c10::DeviceIndex device) {
    static std::array<std::optional<c10::cuda::CUDAStream>, 64> streams;
    auto& stream = streams.at(static_cast<size_t>(device));
    if (!stream) stream = c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device);
    return *stream;
  }

  c10::cuda::CUDAStream main_, side_;
  at::cuda::CUDAEvent ready_, done_;
};

}  // namespace seqfuse::ops
#endif
