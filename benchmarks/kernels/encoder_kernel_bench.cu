// The kernels that follow products in an encoder layer, alone: bias + activation, and bias + residual +
// layer norm. Checked against float64 on the host, then timed beside a copy of as many bytes.
// usage: encoder_kernel_bench [check] [time]
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <vector>

#include "benchmarks/kernels/kernel_bench.cuh"
#include "ops/kernels/gemm/bias_activation.h"
#include "ops/kernels/norm/residual_norm.h"

namespace seqfuse {
namespace {

using namespace ops;

template <class T>
constexpr bool kIsHalf = std::is_same_v<T, __half>;
template <class T>
constexpr DType kTypeOf = kIsHalf<T> ? DType::f16 : DType::bf16;
template <class T>
constexpr double kUnit = kIsHalf<T> ? 0x1p-11 : 0x1p-8;  // half a step, relative

// n random values on the device and on the host.
template <class T>
struct Values {
  std::vector<T> host;
  T* device = nullptr;

  Values(size_t n, double size, unsigned seed) : host(n) {
    std::mt19937 random(seed);
    std::normal_distribution<double> normal(0, size);
    for (T& v : host) v = make<T>(normal(random));
    must(cudaMalloc(&device, n * sizeof(T)), "cudaMalloc");
    must(cudaMemcpy(device, host.data(), n * sizeof(T), cudaMemcpyHostToDevice), "copy");
  }
  Values(const Values&) = delete;
  ~Values() { cudaFree(device); }
  double at(size_t i) const { return value_of(host[i]); }
  std::vector<T> read() const {
    std::vector<T> now(host.size());
    must(cudaMemcpy(now.data(), device, now.size() * sizeof(T), cudaMemcpyDeviceToHost), "copy");
    return now;
  }
};

template <class T>
struct Problem {
  int64_t rows, dim;
  Values<T> x, y, bias, residual, weight, beta;

  Problem(int64_t rows_, int64_t dim_)
      : rows(rows_),
        dim(dim_),
        x(rows * dim, 3, 1),
        y(rows * dim, 0, 2),
        bias(dim, 1, 3),
        residual(rows * dim, 2, 4),
        weight(dim, 1, 5),
        beta(dim, 1, 6) {}

  void activate(Activation activation) const {
    must(bias_activation_cuda({.x = x.device,
                               .bias = bias.device,
                               .y = y.device,
                               .rows = rows,
                               .dim = dim,
                               .activation = activation},
                              kTypeOf<T>, nullptr),
         "bias_activation");
  }
  void norm() const {
    must(residual_norm_forward_cuda({.x = x.device,
                                     .a = bias.device,
                                     .b = residual.device,
                                     .weight = weight.device,
                                     .bias = beta.device,
                                     .y = y.device,
                                     .rows = rows,
                                     .dim = dim,
                                     .x_stride = dim,
                                     .a_stride = 0,
                                     .b_stride = dim,
                                     .eps = 1e-12},
                                    kTypeOf<T>, nullptr),
         "residual_norm");
  }
};

double activation_of(double v, Activation activation) {
  if (activation == Activation::relu) return v > 0 ? v : 0;
  if (activation == Activation::gelu_erf) return 0.5 * v * (1 + std::erf(v / std::sqrt(2.0)));
  return 0.5 * v * (1 + std::tanh(std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v)));
}

template <class T>
void check(const char* type, int64_t rows, int64_t dim) {
  const Problem<T> p(rows, dim);
  for (const auto activation : {Activation::gelu_erf, Activation::gelu_tanh, Activation::relu}) {
    p.activate(activation);
    const std::vector<T> y = p.y.read();
    double worst = 0;  // of what is allowed
    for (int64_t i = 0; i < rows * dim; ++i) {
      const double v = p.x.at(i) + p.bias.at(i % dim), expected = activation_of(v, activation);
      const double allowed = kUnit<T> * std::fabs(expected) + 4e-7 * std::fabs(v) + 3e-8;
      worst = std::max(worst, std::fabs(value_of(y[i]) - expected) / allowed);
    }
    std::printf("%s %ld x %ld, bias + activation %d: error %.2f of what is allowed\n", type, rows,
                dim, static_cast<int>(activation), worst);
    if (!(worst <= 1)) std::exit(1);
  }
  p.norm();
  const std::vector<T> y = p.y.read();
  double worst = 0;
  for (int64_t row = 0; row < rows; ++row) {
    std::vector<double> s(dim);
    double mean = 0, variance = 0;
    for (int64_t j = 0; j < dim; ++j) {
      const T first = make<T>(p.x.at(row * dim + j) + p.bias.at(j));
      s[j] = value_of(make<T>(value_of(first) + p.residual.at(row * dim + j)));
      mean += s[j] / static_cast<double>(dim);
    }
    for (const double v : s) variance += (v - mean) * (v - mean) / static_cast<double>(dim);
    for (int64_t j = 0; j < dim; ++j) {
      const double n = (s[j] - mean) / std::sqrt(variance + 1e-12);
      const double expected = n * p.weight.at(j) + p.beta.at(j);
      const double size = std::fabs(n * p.weight.at(j)) + std::fabs(p.beta.at(j));
      const double allowed = kUnit<T> * std::fabs(expected) + 1e-5 * size + 3e-8;
      worst = std::max(worst, std::fabs(value_of(y[row * dim + j]) - expected) / allowed);
    }
  }
  std::printf("%s %ld x %ld, bias + residual + norm: error %.2f of what is allowed\n", type, rows,
              dim, worst);
  if (!(worst <= 1)) std::exit(1);
}

// Median microseconds of a call, in rounds of 20.
double microseconds(const std::function<void()>& run) {
  run();
  cudaEvent_t begin, end;
  must(cudaEventCreate(&begin), "event");
  must(cudaEventCreate(&end), "event");
  std::vector<double> times;
  constexpr int kCalls = 20;
  for (int round = 0; round < 12; ++round) {
    must(cudaEventRecord(begin), "record");
    for (int i = 0; i < kCalls; ++i) run();
    must(cudaEventRecord(end), "record");
    must(cudaEventSynchronize(end), "synchronize");
    float ms = 0;
    must(cudaEventElapsedTime(&ms, begin, end), "elapsed");
    if (round > 1) times.push_back(1000 * ms / kCalls);
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
  return times[times.size() / 2];
}

void time_case(int64_t rows, int64_t dim) {
  const Problem<__half> p(rows, dim);
  const double bytes = 2.0 * static_cast<double>(rows * dim) * sizeof(__half);
  const auto show = [&](const char* name, double moved, const std::function<void()>& run) {
    const double us = microseconds(run);
    std::printf("  %-24s %9.2f us %7.2f TB/s\n", name, us, moved / us * 1e-6);
  };
  std::printf("float16 %ld x %ld\n", rows, dim);
  show("copy", bytes, [&] {
    must(cudaMemcpyAsync(p.y.device, p.x.device, static_cast<size_t>(bytes / 2),
                         cudaMemcpyDeviceToDevice),
         "copy");
  });
  show("bias + GELU, erf", bytes, [&] { p.activate(Activation::gelu_erf); });
  show("bias + GELU, tanh", bytes, [&] { p.activate(Activation::gelu_tanh); });
  show("bias + residual + norm", 1.5 * bytes, [&] { p.norm(); });
}

}  // namespace
}  // namespace seqfuse

int main(int count, char** arguments) {
  using namespace seqfuse;
  bool checks = count == 1, times = count == 1;
  for (int i = 1; i < count; ++i) {
    checks = checks || std::strcmp(arguments[i], "check") == 0;
    times = times || std::strcmp(arguments[i], "time") == 0;
  }
  if (checks) {
    for (const auto& [rows, dim] :
         {std::pair<int64_t, int64_t>{1, 768}, {77, 1024}, {130, 3072}, {5, 13}}) {
      check<__half>("float16", rows, dim);
      check<__nv_bfloat16>("bfloat16", rows, dim);
    }
  }
  if (times) {
    for (const int64_t rows : {128, 4096, 32768}) {
      for (const int64_t dim : {768, 3072}) time_case(rows, dim);
    }
  }
}
