// Products of a decoding step against sums in float64.
#pragma once

#include <cstring>

#include "benchmarks/kernels/decode_values.cuh"
#include "ops/kernels/decode/step_linear.h"

namespace seqfuse::bench {

using namespace ops;

inline double gelu(double v, LinearActivation a) {
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

}  // namespace seqfuse::bench
