// A whole HSTU layer, forward and backward, in bfloat16 on a GPU: width 1024, 4 heads of 256, 32
// full sequences. seqfuse: the fused layer; operators: the same layer composed of the other
// operators, with attention by matrix products. TFLOP/s count half of causal attention (backward:
// 2.5 times forward) and the products (backward: twice forward), as published figures do. Steps
// start on a card at rest; _loaded: on a card under load.
#include "benchmarks/ops/cuda_bench.h"
#include "ops/torch/attention/hstu_attention_inputs.h"
#include "ops/torch/attention/hstu_layer_arguments.h"
#include "ops/torch/ops.h"

#ifdef SEQFUSE_HAS_CUDA
#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDACachingAllocator.h>

#include <chrono>
#include <thread>

namespace seqfuse::bench::hstu_layer_bench {
namespace {

constexpr int64_t kWidth = 1024, kHeads = 4, kHeadDim = 256, kBatch = 32;
constexpr int64_t kInner = kHeads * kHeadDim;

class AttentionByProducts : public torch::autograd::Function<AttentionByProducts> {
 public:
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& q, const Tensor& k,
                        const Tensor& v, const Tensor& offsets,
                        const ops::HstuAttentionOptions& options) {
    context->save_for_backward({q, k, v, offsets});
    context->saved_data["alpha"] = options.alpha;
    context->saved_data["length"] = options.max_seqlen;
    return ops::attention_by_matmul(
        ops::checked_attention_inputs(q, k, v, offsets, offsets, options));
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& dout) {
    const auto saved = context->get_saved_variables();
    const int64_t length = context->saved_data["length"].toInt();
    ops::HstuAttentionOptions options;
    options.alpha = context->saved_data["alpha"].toDouble();
    options.scaling_seqlen = length;
    options.max_seqlen = length;
    const auto gradients = ops::attention_gradients_by_matmul(
        ops::checked_attention_inputs(saved[0], saved[1], saved[2], saved[3], saved[3], options),
        dout[0]);
    return {gradients.q, gradients.k, gradients.v, Tensor(), Tensor()};
  }
};

// Same signature as hstu_attention.
Tensor attention_by_products(const Tensor& q, const Tensor& k, const Tensor& v,
                             const Tensor& offsets, const Tensor&,
                             const ops::HstuAttentionOptions& options) {
  return AttentionByProducts::apply(q, k, v, offsets, options);
}

struct Layer {
  explicit Layer(int64_t length)
      : offsets(at::arange(0, kBatch + 1, at::TensorOptions(at::kCUDA).dtype(at::kLong)) * length),
        length(length) {
    const auto floats = at::TensorOptions(at::kCUDA).dtype(at::kFloat);
    const auto weight = [&](at::Tensor t) { return t.requires_grad_(); };
    weights = {weight(at::ones({kWidth}, floats)),
               weight(at::zeros({kWidth}, floats)),
               weight(at::randn({kWidth, 4 * kInner}, floats) / 32),
               weight(at::zeros({4 * kInner}, floats)),
               weight(at::ones({kInner}, floats)),
               weight(at::zeros({kInner}, floats)),
               weight(at::randn({kInner, kWidth}, floats) / 32),
               std::nullopt};
    x = at::randn({kBatch * length, kWidth}, floats.dtype(at::kBFloat16)).requires_grad_();
    dout = at::randn_like(x);
    options.heads = kHeads;
    options.dropout = .2;
    options.attention.alpha = 1.0 / 16;
    options.attention.scaling_seqlen = length;
    options.attention.max_seqlen = length;
  }

  Tensor fused() const { return ops::hstu_layer(x, weights, offsets, options); }

  Tensor of_operators() const {
    return ops::layer_of_operators({x, weights, offsets, options}, &attention_by_products);
  }

  double flops() const {
    const double tokens = static_cast<double>(kBatch * length), n = static_cast<double>(length);
    return 3 * 2 * tokens * (4 * kInner * kWidth + kInner * kWidth) + 3.5 * 2 * tokens * kInner * n;
  }

  ops::HstuLayerWeights weights;
  Tensor x, dout, offsets;
  int64_t length;
  ops::HstuLayerOptions options;
};

// The time per step of several steps without a pause, as in training.
double milliseconds(const Work& step, int steps) {
  at::cuda::CUDAEvent begin(cudaEventDefault), end(cudaEventDefault);
  begin.record();
  for (int i = 0; i < steps; ++i) step();
  end.record();
  end.synchronize();
  return begin.elapsed_time(end) / static_cast<double>(steps);
}

constexpr int kSteps = 4;

// For a card that rested for a second, after one untimed step: steps of long sequences reach the
// card's power limit at a time that depends on earlier work.
double rested_milliseconds(const Work& step) {
  torch::cuda::synchronize();
  std::this_thread::sleep_for(std::chrono::seconds(1));
  milliseconds(step, 1);
  return milliseconds(step, kSteps);
}

// After two seconds of the same work.
std::vector<double> loaded_milliseconds(const Work& step) {
  const auto start = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - start < std::chrono::seconds(2))
    milliseconds(step, kSteps);
  std::vector<double> times;
  for (int i = 0; i < 9; ++i) times.push_back(milliseconds(step, kSteps));
  return times;
}

void run(benchmark::State& state, int64_t length) {
  if (!torch::cuda::is_available()) {
    state.SkipWithError("no GPU on this machine");
    return;
  }
  const Layer layer(length);
  const ops::HstuLayerWeights& w = layer.weights;
  const std::vector<Tensor> leaves{
      layer.x,      *w.input_norm_weight,  *w.input_norm_bias,  w.uvqk,
      *w.uvqk_bias, *w.output_norm_weight, *w.output_norm_bias, w.output};
  const auto step = [&](const Tensor& out) { torch::autograd::grad({out}, leaves, {layer.dout}); };
  const Work fused = [&] { step(layer.fused()); };
  const Work operators = [&] { step(layer.of_operators()); };
  std::vector<double> ours, theirs;
  for (auto _ : state) {
    ours.push_back(rested_milliseconds(fused));
    theirs.push_back(rested_milliseconds(operators));
  }
  const auto count = [&](const std::string& kind, double fused_ms, double operators_ms) {
    state.counters["seqfuse_ms" + kind] = fused_ms;
    state.counters["operators_ms" + kind] = operators_ms;
    state.counters["seqfuse_TFLOPs" + kind] = layer.flops() / fused_ms * 1e-9;
    state.counters["operators_TFLOPs" + kind] = layer.flops() / operators_ms * 1e-9;
    state.counters["speed_up" + kind] = operators_ms / fused_ms;
  };
  count("", median(ours), median(theirs));
  count("_loaded", median(loaded_milliseconds(fused)), median(loaded_milliseconds(operators)));
  using Allocator = c10::CachingDeviceAllocator::DeviceStats;
  const auto allocated = [] {
    const Allocator stats = c10::cuda::CUDACachingAllocator::getDeviceStats(0);
    return static_cast<double>(stats.allocated_bytes[0].current);
  };
  const double before = allocated();
  const Tensor kept = layer.fused();
  const double saved = allocated() - before;
  state.counters["saved_bytes_a_token"] = saved / static_cast<double>(layer.x.size(0));
}

const bool registered = [] {
  for (const int64_t length : {1024, 2048, 4096, 8192}) {
    const std::string name = "hstu_layer/cuda/" + std::to_string(length);
    benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& s) { run(s, length); })
        ->Iterations(5)
        ->Unit(benchmark::kMillisecond);
  }
  return true;
}();

}  // namespace
}  // namespace seqfuse::bench::hstu_layer_bench
#endif
