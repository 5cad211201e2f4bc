// The kernels of a decoding step alone: checked against sums in float64 on the host, then timed as
// one CUDA graph a token with the shape of Pythia-2.8B and random weights. launches: each kernel of a
// layer alone, in a chain of one launch for each layer.
// usage: decode_kernel_bench [check [few]] [time] [launches]
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "benchmarks/kernels/kernel_bench.cuh"
#include "ops/kernels/decode/step_attention.h"
#include "ops/kernels/decode/step_ends.h"
#include "ops/kernels/decode/step_linear.h"
#include "ops/kernels/decode/step_norm.h"

namespace seqfuse {
namespace {

using namespace ops;

template <class T>
struct Device {
  T* data = nullptr;
  size_t size = 0;

  explicit Device(size_t n) : size(n) {
    must(cudaMalloc(&data, std::max<size_t>(n, 1) * sizeof(T)), "cudaMalloc");
    must(cudaMemset(data, 0, n * sizeof(T)), "cudaMemset");
  }
  explicit Device(const std::vector<T>& from) : Device(from.size()) {
    must(cudaMemcpy(data, from.data(), size * sizeof(T), cudaMemcpyHostToDevice), "copy");
  }
  Device(const Device&) = delete;
  ~Device() { cudaFree(data); }
  std::vector<T> host() const {
    std::vector<T> to(size);
    must(cudaMemcpy(to.data(), data, size * sizeof(T), cudaMemcpyDeviceToHost), "copy");
    return to;
  }
};

template <class T>
double rounded(double v) {
  return value_of(make<T>(v));
}
template <class T>
constexpr DType kDType = std::is_same_v<T, __half> ? DType::f16 : DType::bf16;
template <class T>
constexpr double kUlp = std::is_same_v<T, __half> ? 1.0 / 1024 : 1.0 / 128;

std::mt19937 generator(1);
template <class T>
std::vector<T> random_values(size_t n, double scale) {
  std::normal_distribution<float> normal(0, static_cast<float>(scale));
  std::vector<T> values(n);
  for (T& v : values) v = make<T>(normal(generator));
  return values;
}

int failures = 0;
void expect(bool ok, const char* format, auto... values) {
  if (ok) return;
  ++failures;
  std::printf("FAILED ");
  std::printf(format, values...);
  std::printf("\n");
  std::fflush(stdout);
}

// The larger of worst and this error; infinite for NaN.
double worse(double worst, double actual, double expected) {
  const double error = std::abs(actual - expected) / (1 + std::abs(expected));
  return std::isnan(error) ? INFINITY : std::max(worst, error);
}

double gelu(double v, LinearActivation a) {
  if (a == LinearActivation::gelu_erf) return v * 0.5 * (1 + std::erf(v * M_SQRT1_2));
  if (a == LinearActivation::gelu_tanh)
    return 0.5 * v * (1 + std::tanh(0.7978845608028654 * (v + 0.044715 * v * v * v)));
  return v;
}

struct Shape {
  int n0, k0, n1, k1;  // n1 = 0: one linear
  bool together;
};

// One launch against the host; and rows of a batch of 16 against the rows alone.
template <class T>
void check_linear(const Shape& shape, int batch, bool int8, LinearActivation activation) {
  const int count = shape.n1 > 0 ? 2 : 1;
  const int n[2] = {shape.n0, shape.n1}, k[2] = {shape.k0, shape.k1};
  std::vector<std::vector<double>> weights(2);
  std::vector<std::vector<T>> biases(2), xs(2);
  std::vector<float> scales[2];
  std::vector<Device<char>*> kept;
  const auto upload = [&](const void* data, size_t bytes) {
    std::vector<char> raw(bytes);
    std::memcpy(raw.data(), data, bytes);
    kept.push_back(new Device<char>(raw));
    return kept.back()->data;
  };
  StepLinearParams p;
  p.count = count;
  p.batch = batch;
  for (int i = 0; i < count; ++i) {
    StepLinear& l = p.linear[i];
    const size_t size = size_t(n[i]) * k[i];
    weights[i].resize(size);
    if (int8) {
      std::vector<int8_t> q(size);
      for (size_t j = 0; j < size; ++j) {
        q[j] = static_cast<int8_t>(static_cast<int>(generator() % 255) - 127);
        weights[i][j] = q[j];
      }
      for (int r = 0; r < n[i]; ++r)
        scales[i].push_back(0.001F + 0.0001F * static_cast<float>(r % 7));
      l.weight = upload(q.data(), size);
      l.scales = reinterpret_cast<float*>(upload(scales[i].data(), 4 * scales[i].size()));
    } else {
      const auto w = random_values<T>(size, 1 / std::sqrt(k[i]));
      for (size_t j = 0; j < size; ++j) weights[i][j] = value_of(w[j]);
      scales[i].assign(n[i], 1);
      l.weight = upload(w.data(), 2 * size);
    }
    biases[i] = random_values<T>(n[i], 1);
    xs[i] = random_values<T>(size_t(batch) * k[i], 1);
    l.bias = upload(biases[i].data(), 2 * n[i]);
    l.x = upload(xs[i].data(), 2 * xs[i].size());
    l.activation = shape.together ? LinearActivation::none : activation;
    l.n = n[i];
    l.k = k[i];
    std::vector<T> nothing(size_t(batch) * n[i]);
    l.y = upload(nothing.data(), 2 * nothing.size());
  }
  const auto residual = random_values<T>(size_t(batch) * n[0], 1);
  if (shape.together) p.residual = upload(residual.data(), 2 * residual.size());
  const auto run = [&](const StepLinearParams& params) {
    must(step_linear_cuda(params, kDType<T>, nullptr), "step_linear");
    must(cudaDeviceSynchronize(), "step_linear");
  };
  run(p);
  for (int i = 0; i < (shape.together ? 1 : count); ++i) {
    std::vector<T> y(size_t(batch) * n[i]);
    must(cudaMemcpy(y.data(), p.linear[i].y, 2 * y.size(), cudaMemcpyDeviceToHost), "copy");
    double worst = 0;
    for (int b = 0; b < batch; ++b) {
      for (int r = 0; r < n[i]; r += 1 + n[i] / 97) {
        const auto product = [&](int layer) {
          double sum = 0;
          const T* x = xs[layer].data() + size_t(b) * k[layer];
          for (int j = 0; j < k[layer]; ++j)
            sum += value_of(x[j]) * weights[layer][size_t(r) * k[layer] + j];
          return rounded<T>(sum * scales[layer][r] + value_of(biases[layer][r]));
        };
        double expected = product(i);
        if (shape.together) {
          if (count == 2) expected = rounded<T>(product(1) + expected);
          expected += value_of(residual[size_t(b) * n[0] + r]);
        } else {
          expected = gelu(expected, activation);
        }
        worst = worse(worst, value_of(y[size_t(b) * n[i] + r]), expected);
      }
    }
    // Added layers are rounded four times.
    const double allowed = kUlp<T> * (shape.together ? 4 : 2.5);
    expect(worst <= allowed, "linear %dx%d %dx%d batch %d int8 %d together %d: %g > %g", n[0], k[0],
           n[1], k[1], batch, int8, shape.together, worst, allowed);
    // Each row alone gives the same bits.
    for (int b = 0; b < batch; ++b) {
      StepLinearParams one = p;
      one.batch = 1;
      for (int j = 0; j < count; ++j)
        one.linear[j].x = static_cast<const T*>(p.linear[j].x) + size_t(b) * k[j];
      if (shape.together) one.residual = static_cast<const T*>(p.residual) + size_t(b) * n[0];
      Device<T> alone(n[i]);
      Device<T> other(n[1 - i] + 1);
      one.linear[i].y = alone.data;
      if (count == 2 && !shape.together) one.linear[1 - i].y = other.data;
      run(one);
      const auto bits = alone.host();
      expect(std::memcmp(bits.data(), y.data() + size_t(b) * n[i], 2 * bits.size()) == 0,
             "row %d of a batch of %d differs from the row alone (n %d, k %d)", b, batch, n[i],
             k[i]);
    }
  }
  for (auto* d : kept) delete d;
}

// Both norms of rows; each row alone gives the same bits.
template <class T>
void check_norm(int64_t size, int batch) {
  const auto x = random_values<T>(batch * size, 3);
  const Device<T> device_x(x);
  std::vector<T> weights[2], biases[2];
  StepNormParams p{.x = device_x.data, .count = 2, .batch = batch, .size = size};
  std::vector<Device<T>*> kept;
  const auto upload = [&](const std::vector<T>& values) {
    kept.push_back(new Device<T>(values));
    return kept.back()->data;
  };
  for (int i = 0; i < 2; ++i) {
    weights[i] = random_values<T>(size, 1), biases[i] = random_values<T>(size, 1);
    p.weight[i] = upload(weights[i]), p.bias[i] = upload(biases[i]);
    p.y[i] = upload(std::vector<T>(batch * size));
  }
  must(step_norm_cuda(p, kDType<T>, nullptr), "step_norm");
  must(cudaDeviceSynchronize(), "step_norm");
  for (int i = 0; i < 2; ++i) {
    const auto y = kept[i * 3 + 2]->host();
    double worst = 0;
    for (int b = 0; b < batch; ++b) {
      double mean = 0, square = 0;
      const T* row = x.data() + b * size;
      for (int64_t j = 0; j < size; ++j) mean += value_of(row[j]) / size;
      for (int64_t j = 0; j < size; ++j) square += std::pow(value_of(row[j]) - mean, 2) / size;
      for (int64_t j = 0; j < size; ++j)
        worst =
            worse(worst, value_of(y[b * size + j]),
                  (value_of(row[j]) - mean) / std::sqrt(square + 1e-5) * value_of(weights[i][j]) +
                      value_of(biases[i][j]));
      StepNormParams one = p;
      one.count = 1, one.batch = 1;
      one.x = device_x.data + b * size;
      one.weight[0] = p.weight[i], one.bias[0] = p.bias[i];
      const Device<T> alone(size);
      one.y[0] = alone.data;
      must(step_norm_cuda(one, kDType<T>, nullptr), "step_norm");
      const auto bits = alone.host();
      expect(std::memcmp(bits.data(), y.data() + b * size, 2 * size) == 0,
             "norm of row %d of a batch of %d differs from the row alone (size %ld)", b, batch,
             long(size));
    }
    expect(worst <= kUlp<T>, "norm of %ld, batch %d: %g", long(size), batch, worst);
  }
  for (auto* d : kept) delete d;
}

// Tokens 0 to steps - 1 of each row, one a step, against attention over all that the rule sees.
template <class T>
void check_attention(int heads, int dim, int rotary, const StepRule& rule, int batch, int steps) {
  const int64_t slots = rule.start + rule.recent + rule.prune_every;
  const int half = rotary / 2;
  std::vector<double> frequencies(half);
  for (int i = 0; i < half; ++i)
    frequencies[i] = static_cast<float>(std::pow(10000.0, -2.0 * i / rotary));
  const size_t row_size = size_t(heads) * dim;
  Device<T> keys(batch * heads * slots * dim), values(batch * heads * slots * dim);
  Device<T> angles(size_t(batch) * 4 * half + 8), out(batch * row_size);
  Device<T> embedding(random_values<T>(64 * 16, 1)), hidden(batch * 16);
  Device<double> device_frequencies(frequencies);
  std::vector<int64_t> lengths(batch);
  Device<int64_t> device_lengths(lengths), ids(std::vector<int64_t>(batch, 3));
  StepAttentionParams p{.keys = keys.data,
                        .values = values.data,
                        .lengths = device_lengths.data,
                        .angles = angles.data,
                        .out = out.data,
                        .batch = batch,
                        .heads = heads,
                        .head_dim = dim,
                        .slots = slots,
                        .rotary_dims = rotary,
                        .rule = rule};
  Device<char> workspace(step_attention_workspace_bytes(p));
  p.workspace = workspace.data;
  std::vector<std::vector<T>> history;  // [step][batch, heads, 3, dim]
  double worst = 0;
  for (int s = 0; s < steps; ++s) {
    const int64_t t = s;
    history.push_back(random_values<T>(batch * row_size * 3, 1));
    const Device<T> qkv(history.back());
    p.qkv = qkv.data;
    for (int64_t& l : lengths) l = t;
    must(cudaMemcpy(device_lengths.data, lengths.data(), 8 * batch, cudaMemcpyHostToDevice),
         "copy");
    must(begin_step_cuda({.embedding = embedding.data,
                          .ids = ids.data,
                          .lengths = device_lengths.data,
                          .frequencies = device_frequencies.data,
                          .hidden = hidden.data,
                          .angles = angles.data,
                          .batch = batch,
                          .hidden_size = 16,
                          .rotary_dims = rotary,
                          .rule = rule},
                         kDType<T>, nullptr),
         "begin");
    must(step_attention_cuda(p, kDType<T>, nullptr), "attention");
    must(cudaDeviceSynchronize(), "attention");
    if (s % 7 != 0 && s != steps - 1) continue;
    const auto result = out.host();
    const auto turn = [&](const T* x, int64_t place, int i) {
      if (i >= rotary) return value_of(x[i]);
      const int pair = i % half;
      const double a = value_of(x[pair]), b = value_of(x[pair + half]);
      const double c = std::cos(place * frequencies[pair]), z = std::sin(place * frequencies[pair]);
      return i < half ? a * c - b * z : b * c + a * z;
    };
    for (int b = 0; b < batch; b += 1 + batch / 3) {
      for (int h = 0; h < heads; h += 1 + heads / 3) {
        const auto at = [&](int step, int part) {
          return history[step].data() + ((size_t(b) * heads + h) * 3 + part) * dim;
        };
        std::vector<double> scores;
        std::vector<int> seen;
        for (int j = 0; j <= s; ++j) {
          const int64_t token = j;
          const bool is_first = token < rule.start;
          if (!is_first && t - token > rule.position(t) - rule.start) continue;
          double score = 0;
          for (int i = 0; i < dim; ++i)
            score += turn(at(s, 0), is_first ? rule.position(t) : t, i) * turn(at(j, 1), token, i);
          scores.push_back(score / std::sqrt(dim));
          seen.push_back(j);
        }
        double most = -1e300, total = 0;
        for (const double v : scores) most = std::max(most, v);
        for (const double v : scores) total += std::exp(v - most);
        for (int i = 0; i < dim; ++i) {
          double sum = 0;
          for (size_t j = 0; j < seen.size(); ++j)
            sum += std::exp(scores[j] - most) / total * value_of(at(seen[j], 2)[i]);
          const double actual = value_of(result[(size_t(b) * heads + h) * dim + i]);
          worst = worse(worst, actual, sum);
        }
      }
    }
  }
  expect(worst <= 8 * kUlp<T>, "attention heads %d dim %d rotary %d start %ld recent %ld: %g",
         heads, dim, rotary, long(rule.start), long(rule.recent), worst);
}

// few: what is enough for compute-sanitizer.
template <class T>
void check(bool few) {
  const std::vector<int> batches = few ? std::vector{3, 16} : std::vector{1, 2, 7, 8, 9, 16};
  for (const int batch : batches) {
    for (const bool int8 : {false, true}) {
      for (const auto act :
           {LinearActivation::none, LinearActivation::gelu_erf, LinearActivation::gelu_tanh})
        check_linear<T>({48, 64, 80, 64, false}, batch, int8, act);
      check_linear<T>({200, 2560, 200, 10240, true}, batch, int8, LinearActivation::none);
      if (few) continue;
      check_linear<T>({240, 2560, 3000, 2560, false}, batch, int8, LinearActivation::gelu_erf);
      check_linear<T>({2560, 2560, 2560, 640, true}, batch, int8, LinearActivation::none);
      check_linear<T>({100, 320, 0, 0, false}, batch, int8, LinearActivation::none);
      check_linear<T>({1000, 4096, 0, 0, true}, batch, int8, LinearActivation::none);
    }
  }
  for (const int64_t size : {8, 64, 2560, 5120, 12296}) check_norm<T>(size, 3);
  for (const int batch : few ? std::vector{3} : std::vector{1, 3, 16}) {
    check_attention<T>(2, 24, 6, {.start = 2, .recent = 9, .prune_every = 3}, batch, 60);
    check_attention<T>(40, 80, 20, {.start = 4, .recent = 300, .prune_every = 1}, batch, 310);
    if (few) continue;
    check_attention<T>(40, 80, 20, {.start = 4, .recent = 600, .prune_every = 1}, batch, 640);
    check_attention<T>(4, 80, 20, {.start = 0, .recent = 299, .prune_every = 1}, batch, 300);
    check_attention<T>(4, 80, 20, {.start = 4, .recent = 60, .prune_every = 1}, batch, 200);
    check_attention<T>(3, 64, 64, {.start = 4, .recent = 200, .prune_every = 16}, batch, 500);
    check_attention<T>(2, 128, 32, {.start = 0, .recent = 130, .prune_every = 1}, batch, 300);
    check_attention<T>(2, 256, 64, {.start = 4, .recent = 300, .prune_every = 1}, batch, 320);
    check_attention<T>(3, 80, 20, {.start = 4, .recent = 1195, .prune_every = 1}, batch, 1210);
  }
}

struct Model {
  int layers = 32, hidden = 2560, inner = 10240, heads = 32, dim = 80, rotary = 20;
  int vocabulary = 50304;
};

enum class What { token, norms, in, attention, out };
const char* name_of(What what) {
  const char* const names[] = {"a token", "norms", "[W_qkv | W_up]", "attention",
                               "[W_out | W_down]"};
  return names[static_cast<int>(what)];
}

// A token, or one kernel of every layer, as one graph.
void time_model(const Model& m, int64_t cache, int batch, bool int8, double ceiling,
                What what = What::token) {
  using T = __half;
  const StepRule rule{.start = 4, .recent = cache - 5, .prune_every = 1};
  const int64_t slots = cache;
  const auto bytes_of = [&](int64_t n, int64_t k) { return n * k * (int8 ? 1 : 2); };
  std::vector<Device<char>*> kept;
  const auto memory = [&](int64_t bytes) {
    kept.push_back(new Device<char>(static_cast<size_t>(bytes)));
    return kept.back()->data;
  };
  const int64_t most_n = std::max<int64_t>(m.vocabulary, m.inner);
  std::vector<float> ones(most_n, 1e-3F);
  Device<float> scales(ones);
  Device<T> vectors(std::vector<T>(most_n, make<T>(0.01)));
  Device<double> frequencies(std::vector<double>(m.rotary / 2, 0.1));
  Device<int64_t> lengths(std::vector<int64_t>(batch, 4 * cache)),
      ids(std::vector<int64_t>(batch, 5)), active(std::vector<int64_t>(batch, 1));
  Device<T> hidden(batch * m.hidden), qkv(batch * 3 * m.hidden), normed(batch * m.hidden),
      normed_for_mlp(batch * m.hidden), inner(batch * m.inner), context(batch * m.hidden),
      logits(size_t(batch) * m.vocabulary), angles(batch * 4 * m.rotary);
  const char* embedding = memory(int64_t{m.vocabulary} * m.hidden * 2);
  double weights_in = 0, weights_out = 0, of_head = 0, cached = 0;  // bytes
  const auto linear = [&](const void* x, int64_t k, int64_t n, void* y, double& bytes,
                          LinearActivation act = LinearActivation::none) {
    StepLinear l;
    l.weight = memory(bytes_of(n, k));
    bytes += static_cast<double>(bytes_of(n, k));
    l.scales = int8 ? scales.data : nullptr;
    l.bias = vectors.data;
    l.x = x;
    l.activation = act;
    l.y = y;
    l.n = n;
    l.k = k;
    return l;
  };
  struct Layer {
    StepLinearParams in, out;
    StepAttentionParams attention;
  };
  std::vector<Layer> layers;
  for (int i = 0; i < m.layers; ++i) {
    Layer layer;
    layer.in.linear[0] = linear(normed.data, m.hidden, 3 * m.hidden, qkv.data, weights_in);
    layer.in.linear[1] = linear(normed_for_mlp.data, m.hidden, m.inner, inner.data, weights_in,
                                LinearActivation::gelu_erf);
    layer.out.linear[0] = linear(context.data, m.hidden, m.hidden, hidden.data, weights_out);
    layer.out.linear[1] = linear(inner.data, m.inner, m.hidden, nullptr, weights_out);
    layer.out.residual = hidden.data;
    for (StepLinearParams* p : {&layer.in, &layer.out}) {
      p->count = 2;
      p->batch = batch;
    }
    const int64_t cache_bytes = int64_t{batch} * m.heads * slots * m.dim * 2;
    layer.attention = {.qkv = qkv.data,
                       .keys = memory(cache_bytes),
                       .values = memory(cache_bytes),
                       .lengths = lengths.data,
                       .angles = angles.data,
                       .out = context.data,
                       .batch = batch,
                       .heads = m.heads,
                       .head_dim = m.dim,
                       .slots = slots,
                       .rotary_dims = m.rotary,
                       .rule = rule};
    layer.attention.workspace = memory(step_attention_workspace_bytes(layer.attention));
    cached += 2.0 * static_cast<double>(cache_bytes);
    layers.push_back(layer);
  }
  StepLinearParams head;
  head.linear[0] = linear(normed.data, m.hidden, m.vocabulary, logits.data, of_head);
  head.linear[0].bias = nullptr;
  head.batch = batch;

  const StepNormParams norms{.x = hidden.data,
                             .weight = {vectors.data, vectors.data},
                             .bias = {vectors.data, vectors.data},
                             .y = {normed.data, normed_for_mlp.data},
                             .count = 2,
                             .batch = batch,
                             .size = m.hidden};

  cudaStream_t stream;
  must(cudaStreamCreate(&stream), "stream");
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "capture");
  const auto wants = [&](What kernel) { return what == What::token || what == kernel; };
  if (what == What::token) {
    must(begin_step_cuda({.embedding = embedding,
                          .ids = ids.data,
                          .lengths = lengths.data,
                          .frequencies = frequencies.data,
                          .hidden = hidden.data,
                          .angles = angles.data,
                          .batch = batch,
                          .hidden_size = m.hidden,
                          .rotary_dims = m.rotary,
                          .rule = rule},
                         DType::f16, stream),
         "begin");
  }
  for (const Layer& layer : layers) {
    if (wants(What::norms)) must(step_norm_cuda(norms, DType::f16, stream), "norms");
    if (wants(What::in)) must(step_linear_cuda(layer.in, DType::f16, stream), "in");
    if (wants(What::attention))
      must(step_attention_cuda(layer.attention, DType::f16, stream), "attention");
    if (wants(What::out)) must(step_linear_cuda(layer.out, DType::f16, stream), "out");
  }
  if (what == What::token) {
    must(step_norm_cuda(norms, DType::f16, stream), "norm");
    must(step_linear_cuda(head, DType::f16, stream), "head");
    must(end_step_cuda({.logits = logits.data,
                        .ids = ids.data,
                        .lengths = lengths.data,
                        .active = active.data,
                        .batch = batch,
                        .vocabulary = m.vocabulary},
                       DType::f16, stream),
         "end");
  }
  must(cudaStreamEndCapture(stream, &graph), "end of capture");
  must(cudaGraphInstantiate(&exec, graph, 0), "instantiate");
  cudaEvent_t begin, end;
  cudaEventCreate(&begin);
  cudaEventCreate(&end);
  std::vector<float> times;
  for (int repeat = 0; repeat < 7; ++repeat) {
    cudaEventRecord(begin, stream);
    for (int i = 0; i < 50; ++i) must(cudaGraphLaunch(exec, stream), "launch");
    cudaEventRecord(end, stream);
    must(cudaStreamSynchronize(stream), "tokens");
    float ms = 0;
    cudaEventElapsedTime(&ms, begin, end);
    times.push_back(ms / 50);
  }
  std::sort(times.begin(), times.end());
  const double bytes = what == What::token       ? weights_in + weights_out + of_head + cached
                       : what == What::in        ? weights_in
                       : what == What::out       ? weights_out
                       : what == What::attention ? cached
                                                 : 0;
  const double ms = times[3], speed = bytes / ms / 1e9;
  const char* const type = int8 ? "int8" : "fp16";
  if (what == What::token) {
    std::printf(
        "cache %ld batch %d %s: %.3f ms a token (%.3f to %.3f), %.2f TB/s, %.0f %% of a copy\n",
        long(cache), batch, type, ms, times[0], times[6], speed, 100 * speed / ceiling);
  } else {
    std::printf("cache %ld batch %d %s: %s %.2f us, its bytes at a copy's speed %.2f us\n",
                long(cache), batch, type, name_of(what), ms * 1e3 / m.layers,
                bytes / ceiling / 1e6 / m.layers);
  }
  std::fflush(stdout);
  cudaGraphExecDestroy(exec);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
  for (auto* d : kept) delete d;
}

double copy_speed() {
  Device<char> from(size_t{2} << 30), to(size_t{2} << 30);
  cudaEvent_t begin, end;
  cudaEventCreate(&begin);
  cudaEventCreate(&end);
  double best = 0;
  for (int i = 0; i < 10; ++i) {
    cudaEventRecord(begin);
    cudaMemcpyAsync(to.data, from.data, from.size, cudaMemcpyDeviceToDevice);
    cudaEventRecord(end);
    cudaEventSynchronize(end);
    float ms = 0;
    cudaEventElapsedTime(&ms, begin, end);
    best = std::max(best, 2.0 * static_cast<double>(from.size) / ms / 1e9);
  }
  return best;
}

}  // namespace
}  // namespace seqfuse

int main(int argc, char** argv) {
  const auto wants = [&](const char* what) {
    for (int i = 1; i < argc; ++i)
      if (std::strcmp(argv[i], what) == 0) return true;
    return argc == 1 && std::strcmp(what, "few") != 0 && std::strcmp(what, "launches") != 0;
  };
  if (wants("check")) {
    seqfuse::check<__half>(wants("few"));
    seqfuse::check<__nv_bfloat16>(wants("few"));
    std::printf("%d checks failed\n", seqfuse::failures);
  }
  if (wants("time")) {
    const double ceiling = seqfuse::copy_speed();
    std::printf("copy: %.2f TB/s\n", ceiling);
    for (const bool int8 : {false, true})
      for (const int batch : {1, 2, 4, 8, 16})
        for (const int64_t cache : {128, 1024, 1091, 2048})
          seqfuse::time_model({}, cache, batch, int8, ceiling);
  }
  if (wants("launches")) {
    using seqfuse::What;
    const double ceiling = seqfuse::copy_speed();
    for (const bool int8 : {false, true})
      for (const int batch : {1, 16})
        for (const What what : {What::norms, What::in, What::attention, What::out})
          if (!int8 || what == What::in || what == What::out)
            seqfuse::time_model({}, 1024, batch, int8, ceiling, what);
  }
  return seqfuse::failures > 0;
}
