#include "serving/tuning/program_bench.h"

#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "ops/torch/checks.h"

#ifdef SEQFUSE_HAS_CUDA
#include <ATen/cuda/CUDAEvent.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#endif

namespace seqfuse::serving {
namespace {

using at::Tensor;
using fusion::Op;
using models::bert::kOps;
using models::bert::LayerRun;
using models::bert::LayerWeights;
using models::bert::Model;
using models::bert::Rows;
using models::bert::SegmentWay;
using tuning::Status;

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double milliseconds_on_cpu(const std::function<void()>& run) {
  constexpr double kEnough = 250;
  using Clock = std::chrono::steady_clock;
  run();
  std::vector<double> times;
  for (double total = 0; times.size() < 3 || (total < kEnough && times.size() < 25);) {
    const auto start = Clock::now();
    run();
    times.push_back(std::chrono::duration<double, std::milli>(Clock::now() - start).count());
    total += times.back();
  }
  return median(times);
}

#ifdef SEQFUSE_HAS_CUDA
std::vector<double> times_of_graph(const std::function<void()>& run, int copies,
                                   const c10::cuda::CUDAStream& stream) {
  constexpr double kEnough = 100;
  at::cuda::CUDAGraph graph;
  graph.capture_begin();
  try {
    for (int i = 0; i < copies; ++i) run();
  } catch (...) {
    try {
      graph.capture_end();
    } catch (const std::exception&) {  // the error being thrown says more
    }
    throw;
  }
  graph.capture_end();
  graph.replay();
  stream.synchronize();
  at::cuda::CUDAEvent begin(cudaEventDefault), end(cudaEventDefault);
  std::vector<double> times;
  for (double total = 0; times.size() < 5 || (total < kEnough && times.size() < 50);) {
    begin.record(stream);
    graph.replay();
    end.record(stream);
    end.synchronize();
    times.push_back(begin.elapsed_time(end) / copies);
    total += begin.elapsed_time(end);
  }
  return times;
}

// Time of one run, from a CUDA graph of `copies` runs.
double milliseconds_on_gpu(const std::function<void()>& run, int copies, at::Device device) {
  // Always the same stream: each new one would get workspaces of its own.
  static const c10::cuda::CUDAStream stream = c10::cuda::getStreamFromPool(false, device.index());
  c10::cuda::device_synchronize();  // other streams compute the inputs
  double milliseconds = 0;
  {
    const c10::cuda::CUDAStreamGuard guard(stream);
    for (int i = 0; i < 2; ++i) run();  // loads and compiles kernels
    stream.synchronize();
    milliseconds = median(times_of_graph(run, copies, stream));
  }
  c10::cuda::CUDACachingAllocator::emptyCache();  // a graph's memory is for no other
  return milliseconds;
}
#endif

LayerWeights widened(const LayerWeights& w) {
  const auto wide = [](const Tensor& t) { return t.to(at::kDouble); };
  return {wide(w.gemm0),        wide(w.bias0),      wide(w.gemm1),        wide(w.bias1),
          wide(w.norm1_weight), wide(w.norm1_bias), wide(w.gemm2),        wide(w.bias2),
          wide(w.gemm3),        wide(w.bias3),      wide(w.norm2_weight), wide(w.norm2_bias)};
}

models::bert::Tokens random_tokens(const Model& model, const std::vector<int64_t>& lengths) {
  const at::Device device = model.device();
  const at::Generator generator = at::detail::createCPUGenerator(1);
  const int64_t count = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  const Tensor ids = at::randint(model.config().vocab_size, {count}, generator, at::kLong);
  return {ids.to(device), Tensor(), models::bert::positions_of(lengths, device)};
}

}  // namespace

struct ProgramBench::State {
  State(const Model& of_model, const std::vector<std::string>& mask, int64_t batch, int64_t seq)
      : model(of_model), rows(rows_of(of_model, mask, batch, seq)) {
    const at::NoGradGuard no_grad;
    rows.dense = rows.dense_mask(model.device());
    input =
        model.embed(random_tokens(model, std::vector<int64_t>(static_cast<size_t>(batch), seq)));
    expected = reference();
    LayerRun run = layer_run();
    finish(run, 0);
    unfused_error = error_of(run.of(Op::layer_norm2));
    values = std::move(run.outputs);
  }

  static Rows rows_of(const Model& model, const std::vector<std::string>& mask, int64_t batch,
                      int64_t seq) {
    const int64_t longest = model.config().max_position_embeddings;
    SEQFUSE_CHECK_AS(UsageError, batch > 0 && seq > 0 && seq <= longest,
                     "tune: a batch of ({}, {}); this model takes sequences of 1 to {} tokens",
                     batch, seq, longest);
    return Rows::jagged(std::vector<int64_t>(static_cast<size_t>(batch), seq),
                        models::bert::SequenceMask::parse(mask), model.device());
  }

  LayerRun layer_run() const {
    return {.config = model.config(),
            .weights = model.layers()[0],
            .rows = rows,
            .dense_mask = rows.dense,
            .input = input,
            .outputs = {}};
  }

  // Runs the operators from `first` on, each alone.
  static void finish(LayerRun& run, int first) {
    for (int op = first; op < kOps; ++op) {
      const auto i = static_cast<size_t>(op);
      run.outputs[i] = models::bert::unfused().segments()[i].run(run);
    }
  }

  // The output of layer 1 in float64, one group after the other.
  Tensor reference() const {
    const LayerWeights weights = widened(model.layers()[0]);
    std::vector<Tensor> parts;
    Rows one{.groups = 1, .length = rows.length};
    for (int64_t g = 0; g < rows.groups; ++g) {
      const Tensor mask = rows.dense.narrow(0, rows.dense.size(0) == 1 ? 0 : g, 1);
      const Tensor states = input.narrow(0, g * rows.length, rows.length).to(at::kDouble);
      parts.push_back(
          models::bert::unfused().run_layer(model.config(), weights, one, mask, states));
    }
    return at::cat(parts);
  }

  double error_of(const Tensor& states) const {
    return (states.to(at::kDouble) - expected).abs().max().item<double>();
  }

  // A wrong result, as a Timing; none: it is right. NaN is wrong.
  std::optional<Timing> wrong(const Tensor& states) const {
    const double error = error_of(states);
    const double most = 2 * unfused_error + (input.element_size() == 2   ? 1e-4
                                             : input.element_size() == 4 ? 1e-6
                                                                         : 1e-12);
    if (error <= most) return std::nullopt;
    return Timing{.status = Status::wrong,
                  .milliseconds = 0,
                  .note = fmt::format("its error is {:.3g}, that of the unfused program {:.3g}",
                                      error, unfused_error)};
  }

  double milliseconds(const std::function<void()>& run, [[maybe_unused]] int copies) const {
#ifdef SEQFUSE_HAS_CUDA
    if (model.device().is_cuda()) return milliseconds_on_gpu(run, copies, model.device());
#endif
    return milliseconds_on_cpu(run);
  }

  const Model& model;
  Rows rows;
  Tensor input;     // of layer 1
  Tensor expected;  // float64
  double unfused_error = 0;
  std::array<Tensor, kOps> values;  // of layer 1, by the unfused program
};

ProgramBench::ProgramBench(const Model& model, const std::vector<std::string>& mask, int64_t batch,
                           int64_t seq)
    : state_(std::make_unique<State>(model, mask, batch, seq)) {}
ProgramBench::~ProgramBench() = default;

Timing ProgramBench::scheme(int64_t number, const models::bert::Choices& choices) {
  const at::NoGradGuard no_grad;
  const State& state = *state_;
  const models::bert::SchemeProgram program(
      fusion::Scheme::from_number(number),
      {.config = state.model.config(), .device = state.model.device(), .cache = {}}, choices);
  const Tensor states = program.program().run_layer(state.model.config(), state.model.layers()[0],
                                                    state.rows, state.rows.dense, state.input);
  if (auto wrong = state.wrong(states)) return *std::move(wrong);
  const double time = state.milliseconds(
      [&] { state.model.run_layers(state.input, state.rows, program.program()); }, 1);
  return {.status = Status::ok, .milliseconds = time, .note = program.shortfall()};
}

Timing ProgramBench::segment(fusion::Segment segment, const std::string& choice) {
  const at::NoGradGuard no_grad;
  const State& state = *state_;
  const SegmentWay way = models::bert::way_of(
      segment, {.config = state.model.config(), .device = state.model.device(), .cache = {}},
      choice);
  LayerRun run = state.layer_run();
  run.outputs = state.values;
  // bias2+GELU works in place.
  Tensor& inner = run.outputs[static_cast<size_t>(Op::gemm2)];
  inner = inner.clone();
  run.outputs[static_cast<size_t>(segment.last)] = way.run.run(run);
  State::finish(run, segment.last + 1);
  if (auto wrong = state.wrong(run.of(Op::layer_norm2))) return *std::move(wrong);
  run.outputs = state.values;
  inner = inner.clone();
  const double time =
      state.milliseconds([&] { way.run.run(run); }, state.rows.count() < 8192 ? 20 : 5);
  return {.status = Status::ok, .milliseconds = time, .note = way.shortfall()};
}

std::vector<std::string> ProgramBench::choices(fusion::Segment segment) const {
  return models::bert::choices_of(
      segment, {.config = state_->model.config(), .device = state_->model.device(), .cache = {}},
      ops::dtype_of(state_->input), state_->rows.length);
}

}  // namespace seqfuse::serving
