// A jagged batch on the GPU for the attention kernels, with its launches.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "ops/kernels/attention/hstu_attention.h"

namespace seqfuse::bench {

inline void must(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::printf("%s: %s\n", what, cudaGetErrorString(error));
  std::exit(2);
}

// Device memory, freed by the destructor.
template <class T>
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(size_t size) : size_(size) {
    must(cudaMalloc(&data_, std::max<size_t>(size, 1) * sizeof(T)), "cudaMalloc");
  }
  explicit Buffer(const std::vector<T>& values) : Buffer(values.size()) {
    must(cudaMemcpy(data_, values.data(), size_ * sizeof(T), cudaMemcpyHostToDevice), "copy");
  }
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~Buffer() { cudaFree(data_); }
  T* get() const { return data_; }
  size_t size() const { return size_; }
  void fill(int byte) { must(cudaMemset(data_, byte, size_ * sizeof(T)), "memset"); }
  std::vector<T> host() const {
    std::vector<T> values(size_);
    must(cudaMemcpy(values.data(), data_, size_ * sizeof(T), cudaMemcpyDeviceToHost), "copy back");
    return values;
  }

 private:
  T* data_ = nullptr;
  size_t size_ = 0;
};

struct Options {
  std::vector<int> queries, keys;  // per sequence
  int heads = 2, head_dim = 64;
  DType dtype = DType::bf16;
  bool causal = true;
  std::vector<int64_t> contexts, targets;  // empty: none
  int group = 1, window = 0, full_rows = 0;
  bool position = false, time = false, requests = false;
  bool int32_offsets = false, deterministic = false;
  int gap = 0;       // elements between rows, and before the first
  bool pre = false;  // multiply gradients by silu' of the pre-activations of q, k and v
};

// Random 16-bit elements of one tensor [T, H, d] inside a buffer with longer rows.
struct Heads {
  Buffer<uint16_t> buffer;
  int64_t row_stride = 0, offset = 0;
  ops::JaggedHeads view(int64_t head_dim) const {
    return {buffer.get() + offset, row_stride, head_dim};
  }
};

class Problem {
 public:
  explicit Problem(const Options& o) : o(o) {
    std::mt19937 random(7);
    q_offsets = {0};
    k_offsets = {0};
    for (size_t b = 0; b < o.keys.size(); ++b) {
      q_offsets.push_back(q_offsets.back() + o.queries[b]);
      k_offsets.push_back(k_offsets.back() + o.keys[b]);
      longest = std::max<int64_t>(longest, o.keys[b]);
    }
    const int64_t tq = q_offsets.back(), tk = k_offsets.back();
    q = make(tq, random, 1.5f);
    k = make(tk, random, 1.5f);
    v = make(tk, random, 1.0f);
    dout = make(tq, random, 1.0f);
    if (o.pre) {
      pre_q = make(tq, random, 1.5f);
      pre_k = make(tk, random, 1.5f);
      pre_v = make(tk, random, 1.5f);
    }
    out = make(tq, random, 0);
    dq = make(tq, random, 0);
    dk = make(tk, random, 0);
    dv = make(tk, random, 0);
    const auto offsets = [&](const std::vector<int64_t>& values) {
      std::vector<int32_t> words;
      for (int64_t value : values) {
        words.push_back(static_cast<int32_t>(value));
        if (!o.int32_offsets) words.push_back(static_cast<int32_t>(value >> 32));
      }
      return Buffer<int32_t>(words);
    };
    q_offsets_gpu = offsets(q_offsets);
    k_offsets_gpu = offsets(k_offsets);
    contexts_gpu = Buffer<int64_t>(o.contexts);
    targets_gpu = Buffer<int64_t>(o.targets);
    std::normal_distribution<float> normal;
    if (o.position) {
      position.resize(2 * longest + 5);
      for (float& x : position) x = normal(random);
    }
    if (o.time) {
      weights.resize(40);
      for (float& x : weights) x = normal(random);
      for (size_t b = 0; b < o.keys.size(); ++b) {
        int64_t t = 1'700'000'000'000;
        for (int j = 0; j < o.keys[b]; ++j) {
          t += static_cast<int64_t>(std::exp(4 * normal(random)));
          times.push_back(t);
        }
        request_times.push_back(t + 1000);
      }
    }
    position_gpu = Buffer<float>(position);
    weights_gpu = Buffer<float>(weights);
    times_gpu = Buffer<int64_t>(times);
    requests_gpu = Buffer<int64_t>(request_times);
    d_position = Buffer<float>(position.size());
    d_weights = Buffer<float>(weights.size());
    const auto bytes = std::max(ops::hstu_attention_forward_workspace_bytes(params()),
                                ops::hstu_attention_backward_workspace_bytes(backward_params()));
    workspace = Buffer<char>(static_cast<size_t>(bytes));
    poison();
  }

  ops::HstuAttentionParams params() const {
    ops::HstuAttentionParams p;
    p.batch = static_cast<int64_t>(o.keys.size());
    p.heads = o.heads;
    p.head_dim = o.head_dim;
    p.q = q.view(o.head_dim);
    p.k = k.view(o.head_dim);
    p.v = v.view(o.head_dim);
    p.out = out.view(o.head_dim);
    p.q_offsets = reinterpret_cast<const int64_t*>(q_offsets_gpu.get());
    p.k_offsets = reinterpret_cast<const int64_t*>(k_offsets_gpu.get());
    p.alpha = 1 / std::sqrt(static_cast<double>(o.head_dim));
    p.scaling_seqlen = std::max<int64_t>(longest, 1);
    p.mask = {.causal = o.causal,
              .target_group_size = o.group,
              .max_attn_len = o.window,
              .min_full_attn_seq_len = o.full_rows};
    p.num_contexts = o.contexts.empty() ? nullptr : contexts_gpu.get();
    p.num_targets = o.targets.empty() ? nullptr : targets_gpu.get();
    if (o.position) {
      p.position_bias = position_gpu.get();
      p.position_bias_size = static_cast<int64_t>(position.size());
    }
    if (o.time) {
      p.time_bias = weights_gpu.get();
      p.num_time_buckets = static_cast<int64_t>(weights.size());
      p.timestamps = times_gpu.get();
      if (o.requests) p.request_times = requests_gpu.get();
    }
    p.total_queries = q_offsets.back();
    p.total_keys = k_offsets.back();
    p.max_seqlen = longest;
    p.int32_offsets = o.int32_offsets;
    p.workspace = workspace.get();
    return p;
  }

  ops::HstuAttentionBackwardParams backward_params() const {
    ops::HstuAttentionBackwardParams p;
    p.forward = params();
    p.dout = dout.view(o.head_dim);
    p.dq = dq.view(o.head_dim);
    p.dk = dk.view(o.head_dim);
    p.dv = dv.view(o.head_dim);
    if (o.position) p.d_position_bias = d_position.get();
    if (o.time) p.d_time_bias = d_weights.get();
    p.deterministic = o.deterministic;
    if (o.pre) {
      p.pre_q = pre_q.view(o.head_dim);
      p.pre_k = pre_k.view(o.head_dim);
      p.pre_v = pre_v.view(o.head_dim);
    }
    return p;
  }

  // Sets all bits of the outputs, so that unwritten elements show: as numbers they are NaN.
  void poison() {
    for (Heads* h : {&out, &dq, &dk, &dv}) h->buffer.fill(0xff);
    d_position.fill(0xff);
    d_weights.fill(0xff);
    workspace.fill(0xff);
  }

  void forward(cudaStream_t stream = nullptr) const {
    must(ops::hstu_attention_forward_cuda(params(), o.dtype, stream), "forward");
  }
  void backward(cudaStream_t stream = nullptr) const {
    must(ops::hstu_attention_backward_cuda(backward_params(), o.dtype, stream), "backward");
  }

  Options o;
  std::vector<int64_t> q_offsets, k_offsets, times, request_times;
  std::vector<float> position, weights;
  int64_t longest = 0;
  Heads q, k, v, dout, out, dq, dk, dv, pre_q, pre_k, pre_v;
  Buffer<int32_t> q_offsets_gpu, k_offsets_gpu;
  Buffer<int64_t> contexts_gpu, targets_gpu, times_gpu, requests_gpu;
  Buffer<float> position_gpu, weights_gpu, d_position, d_weights;
  Buffer<char> workspace;

 private:
  Heads make(int64_t rows, std::mt19937& random, float deviation) const {
    Heads h;
    h.row_stride = int64_t{o.heads} * o.head_dim + o.gap;
    h.offset = o.gap;
    std::vector<uint16_t> values(static_cast<size_t>(rows * h.row_stride + 2 * o.gap));
    if (deviation > 0) {
      std::normal_distribution<float> normal(0, deviation);
      // A few thousand distinct numbers are random enough, and fast to draw.
      std::vector<uint16_t> some(8191);
      for (auto& x : some) x = bits(normal(random));
      for (size_t e = 0; e < values.size(); ++e) values[e] = some[(e * 7919 + e / 8191) % 8191];
    }
    h.buffer = Buffer<uint16_t>(values);
    return h;
  }
  uint16_t bits(float x) const {
    if (o.dtype == DType::bf16) return __bfloat16_as_ushort(__float2bfloat16(x));
    return __half_as_ushort(__float2half(x));
  }
};

}  // namespace seqfuse::bench
