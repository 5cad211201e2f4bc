#include "certify/recorded_margins.h"

#include <utility>

#ifdef SEQFUSE_HAS_CUDA
#include <ATen/cuda/CUDAEvent.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <map>
#include <optional>

#include "base/log.h"
#endif

namespace seqfuse::certify {
using at::Tensor;

#ifdef SEQFUSE_HAS_CUDA
struct RecordedMargins::Recorder {
  // The computation for one number of radii, and where it reads and writes.
  struct Recording {
    Ball ball;
    Tensor labels, lower;
    std::optional<at::cuda::CUDAGraph> graph;
  };

  Recorder(const Graph& net, const Perturbation& perturbation, const MarginOptions& options,
           at::Device device)
      : net(net),
        perturbation(perturbation),
        options(options),
        stream(c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device.index())) {}

  ~Recorder() {
    try {
      stream.synchronize();
    } catch (const std::exception&) {  // whoever waited for the result has seen the error
    }
  }

  // lower_margins() of one input at several radii, on the CPU.
  Tensor run(const Tensor& center, const std::vector<double>& eps, int64_t label) {
    at::cuda::CUDAEvent center_is_there;
    center_is_there.record(c10::cuda::getCurrentCUDAStream(stream.device_index()));
    const c10::cuda::CUDAStreamGuard guard(stream);
    center_is_there.block(stream);
    const auto [found, is_new] = recordings.try_emplace(static_cast<int64_t>(eps.size()));
    Recording& recording = found->second;
    if (is_new) prepare(recording, center, static_cast<int64_t>(eps.size()));
    recording.ball.center.copy_(center.expand_as(recording.ball.center));
    recording.ball.eps_on_device.copy_(at::tensor(eps, at::kDouble));
    recording.labels.fill_(label);
    // The first run also makes libraries allocate what they need on this stream.
    if (!is_new && !recording.graph && !given_up) record(recording);
    if (recording.graph) {
      recording.graph->replay();
    } else {
      recording.lower = compute(recording);
    }
    return recording.lower.cpu();
  }

  void prepare(Recording& recording, const Tensor& center, int64_t radii) const {
    recording.ball = {
        .center = at::empty({radii, center.size(0), center.size(1)}, center.options()),
        .positions = perturbation.positions,
        .norm = perturbation.norm};
    const at::TensorOptions options = center.options();
    recording.ball.eps_on_device = at::empty({radii}, options.dtype(at::kDouble));
    recording.ball.positions_on_device =
        at::tensor(perturbation.positions, at::kLong).to(options.device());
    recording.labels = at::empty({radii}, options.dtype(at::kLong));
  }

  Tensor compute(const Recording& recording) const {
    return lower_margins(net, recording.ball, recording.labels, options);
  }

  void record(Recording& recording) {
    stream.synchronize();
    c10::cuda::CUDACachingAllocator::emptyCache();  // graphs need memory outside the cache
    recording.graph.emplace();
    try {
      recording.graph->capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
      recording.lower = compute(recording);
      recording.graph->capture_end();
    } catch (const std::exception& error) {
      end_recording(*recording.graph);
      recording.graph.reset();
      if (dynamic_cast<const c10::OutOfMemoryError*>(&error) == nullptr) throw;
      log::info("certify", "bounds are computed without CUDA graphs: not enough memory for them");
      given_up = true;
    }
  }

  // Restores the stream and the allocator after an error.
  void end_recording(at::cuda::CUDAGraph& graph) const {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    C10_CUDA_CHECK_WARN(cudaStreamIsCapturing(stream, &status));
    if (status == cudaStreamCaptureStatusNone) return;
    try {
      graph.capture_end();
    } catch (const std::exception&) {  // the error being handled says more
    }
  }

  const Graph& net;
  const Perturbation& perturbation;
  const MarginOptions& options;
  c10::cuda::CUDAStream stream;
  std::map<int64_t, Recording> recordings;  // by the number of radii
  bool given_up = false;
};
#else
struct RecordedMargins::Recorder {};
#endif

RecordedMargins::RecordedMargins(const Graph& graph, Perturbation perturbation,
                                 const MarginOptions& options)
    : graph_(graph), perturbation_(std::move(perturbation)), options_(options) {}

RecordedMargins::~RecordedMargins() = default;

Ball RecordedMargins::ball(const Tensor& center, const std::vector<double>& eps) const {
  return {.center = center.unsqueeze(0).expand({static_cast<int64_t>(eps.size()), -1, -1}),
          .positions = perturbation_.positions,
          .norm = perturbation_.norm,
          .eps = eps};
}

Margins RecordedMargins::at_radii(const Tensor& center, const std::vector<double>& eps,
                                  int64_t label) {
  const at::NoGradGuard no_grad;
  const std::vector<int64_t> labels(eps.size(), label);
#ifdef SEQFUSE_HAS_CUDA
  if (center.is_cuda() && options_.method != Method::crown) {
    const c10::cuda::CUDAGuard guard(center.device());
    if (!recorder_) {
      recorder_ = std::make_unique<Recorder>(graph_, perturbation_, options_, center.device());
    }
    return finished_margins(recorder_->run(center, eps, label), graph_, ball(center, eps), labels,
                            options_);
  }
#endif
  return margins(graph_, ball(center, eps), labels, options_);
}

}  // namespace seqfuse::certify
