// The kernels of a decoding step against sums in float64 on the host.
#pragma once

#include <algorithm>
#include <cstring>

#include "benchmarks/kernels/decode_check_linear.cuh"
#include "ops/kernels/decode/step_attention.h"
#include "ops/kernels/decode/step_ends.h"
#include "ops/kernels/decode/step_norm.h"

namespace seqfuse::bench {

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

}  // namespace seqfuse::bench
