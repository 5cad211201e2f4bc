// The attention kernels against the formula in float64, computed naively on the GPU.
#pragma once

#include <cmath>
#include <string>

#include "benchmarks/kernels/hstu_attention_problem.cuh"

namespace seqfuse::bench {

struct Reference {
  ops::HstuAttentionParams p;
  ops::JaggedHeads dout;
  bool bf16;
  double *out, *dq, *dk, *dv, *d_position, *d_weights;
};

__device__ inline double element(const ops::JaggedHeads& t, bool bf16, int64_t row, int64_t head,
                                 int64_t e) {
  const auto* at =
      static_cast<const uint16_t*>(t.data) + row * t.row_stride + head * t.head_stride + e;
  return bf16 ? __bfloat162float(__ushort_as_bfloat16(*at)) : __half2float(__ushort_as_half(*at));
}

__device__ inline bool sees(const ops::HstuAttentionParams& p, int b, int64_t keys, int64_t i,
                            int64_t j) {
  const int64_t contexts = p.num_contexts ? p.num_contexts[b] : 0;
  const int64_t history_end = keys - (p.num_targets ? p.num_targets[b] : 0);
  const auto id = [&](int64_t place) {
    return place - contexts + 1 > 0 ? place - contexts + 1 : int64_t{0};
  };
  if (i < contexts && j < history_end) return true;
  int64_t distance = id(i) - id(j);
  if (!p.mask.causal && distance < 0) distance = -distance;
  if (i != j && distance <= 0) return false;
  if (i >= history_end && j >= history_end &&
      (i - history_end) / p.mask.target_group_size != (j - history_end) / p.mask.target_group_size)
    return false;
  const bool all =
      p.mask.min_full_attn_seq_len > 0 && id(i) >= id(history_end) - p.mask.min_full_attn_seq_len;
  return p.mask.max_attn_len == 0 || distance <= p.mask.max_attn_len || all;
}

// One thread per (query, head, key).
__global__ void reference_kernel(Reference r, int b, int64_t q0, int64_t queries, int64_t k0,
                                 int64_t keys) {
  const auto& p = r.p;
  const int64_t index = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (index >= queries * keys * p.heads) return;
  const int64_t j = index % keys, head = index / keys % p.heads, row = index / keys / p.heads;
  const int64_t i = keys - queries + row, d = p.head_dim;
  if (!sees(p, b, keys, i, j)) return;
  double product = 0, gradient = 0;
  for (int64_t e = 0; e < d; ++e) {
    product += element(p.q, r.bf16, q0 + row, head, e) * element(p.k, r.bf16, k0 + j, head, e);
    gradient += element(r.dout, r.bf16, q0 + row, head, e) * element(p.v, r.bf16, k0 + j, head, e);
  }
  double s = p.alpha * product;
  const int64_t position = (p.position_bias_size - 1) / 2 + j - i;
  if (p.position_bias) s += static_cast<const float*>(p.position_bias)[position];
  int64_t bucket = 0;
  if (p.time_bias) {
    const int64_t last = p.request_times ? p.request_times[b] : p.timestamps[k0 + keys - 1];
    const int64_t next = i + 1 < keys ? p.timestamps[k0 + i + 1] : last;
    const double x = fmax(fabs(static_cast<double>(next - p.timestamps[k0 + j])), 1.0);
    bucket = min(static_cast<int64_t>(floor(log(x) / 0.301)), p.num_time_buckets - 1);
    s += static_cast<const float*>(p.time_bias)[bucket];
  }
  const double sigma = 1 / (1 + exp(-s)), scale = 1.0 / static_cast<double>(p.scaling_seqlen);
  const double a = s * sigma * scale, ds = gradient * sigma * (1 + s * (1 - sigma)) * scale;
  for (int64_t e = 0; e < d; ++e) {
    const int64_t qi = ((q0 + row) * p.heads + head) * d + e,
                  kj = ((k0 + j) * p.heads + head) * d + e;
    atomicAdd(r.out + qi, a * element(p.v, r.bf16, k0 + j, head, e));
    atomicAdd(r.dv + kj, a * element(r.dout, r.bf16, q0 + row, head, e));
    atomicAdd(r.dq + qi, p.alpha * ds * element(p.k, r.bf16, k0 + j, head, e));
    atomicAdd(r.dk + kj, p.alpha * ds * element(p.q, r.bf16, q0 + row, head, e));
  }
  if (p.position_bias) atomicAdd(r.d_position + position, ds);
  if (p.time_bias) atomicAdd(r.d_weights + bucket, ds);
}

// Multiplies gradients [T, H, d] by silu' of z.
__global__ void silu_gradient_kernel(double* gradients, int64_t size, ops::JaggedHeads z, bool bf16,
                                     int64_t heads, int64_t d) {
  const int64_t e = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (e >= size) return;
  const double x = element(z, bf16, e / d / heads, e / d % heads, e % d);
  const double sigma = 1 / (1 + exp(-x));
  gradients[e] *= sigma * (1 + x * (1 - sigma));
}

inline double number(uint16_t bits, DType dtype) {
  return dtype == DType::bf16 ? __bfloat162float(__ushort_as_bfloat16(bits))
                              : __half2float(__ushort_as_half(bits));
}

// Largest error relative to the largest value; infinite if anything else was written.
inline double error_of(const Problem& p, const Heads& heads, const Buffer<double>& expected,
                       std::string& note) {
  const auto got = heads.buffer.host();
  const auto want = expected.host();
  const int64_t width = int64_t{p.o.heads} * p.o.head_dim;
  double largest = 1e-30, error = 0;
  size_t seen = 0;
  for (size_t at = 0; at < got.size(); ++at) {
    const int64_t place = static_cast<int64_t>(at) - heads.offset;
    const bool inside = place >= 0 && place % heads.row_stride < width &&
                        place / heads.row_stride * width < static_cast<int64_t>(want.size());
    if (!inside) {
      if (got[at] != 0xffff) {
        note = " wrote outside";
        return INFINITY;
      }
      continue;
    }
    const double x = number(got[at], p.o.dtype);
    const double y = want[seen++];
    if (!(std::abs(x) < 1e30)) {
      note = " not written or not finite: row " + std::to_string(place / heads.row_stride) +
             " column " + std::to_string(place % heads.row_stride);
      return INFINITY;
    }
    largest = std::max(largest, std::abs(y));
    if (std::abs(x - y) > error) {
      error = std::abs(x - y);
      note = " row " + std::to_string(place / heads.row_stride) + " column " +
             std::to_string(place % heads.row_stride) + ": " + std::to_string(x) + " for " +
             std::to_string(y);
    }
  }
  return error / largest;
}

inline double error_of(const Buffer<float>& got, const Buffer<double>& expected) {
  const auto x = got.host();
  const auto y = expected.host();
  double largest = 1e-30, error = 0;
  for (size_t e = 0; e < x.size(); ++e) {
    largest = std::max(largest, std::abs(y[e]));
    error = std::max(error, std::isfinite(x[e]) ? std::abs(x[e] - y[e]) : INFINITY);
  }
  return error / largest;
}

// Prints a line for each failure.
inline int check(const char* name, const Options& o, bool backward) {
  Problem p(o);
  const size_t q_size = static_cast<size_t>(p.q_offsets.back()) * o.heads * o.head_dim;
  const size_t k_size = static_cast<size_t>(p.k_offsets.back()) * o.heads * o.head_dim;
  Buffer<double> out(q_size), dq(q_size), dk(k_size), dv(k_size), d_position(p.position.size()),
      d_weights(p.weights.size());
  for (Buffer<double>* buffer : {&out, &dq, &dk, &dv, &d_position, &d_weights}) buffer->fill(0);
  Reference r{
      p.params(), p.backward_params().dout, o.dtype == DType::bf16, out.get(), dq.get(), dk.get(),
      dv.get(),   d_position.get(),         d_weights.get()};
  for (size_t b = 0; b < o.keys.size(); ++b) {
    const int64_t pairs = int64_t{o.queries[b]} * o.keys[b] * o.heads;
    if (pairs == 0) continue;
    reference_kernel<<<static_cast<unsigned>((pairs + 127) / 128), 128>>>(
        r, static_cast<int>(b), p.q_offsets[b], o.queries[b], p.k_offsets[b], o.keys[b]);
  }
  if (o.pre) {
    const auto b = p.backward_params();
    const auto multiply = [&](Buffer<double>& gradients, const ops::JaggedHeads& z) {
      const auto size = static_cast<int64_t>(gradients.size());
      if (size == 0) return;
      silu_gradient_kernel<<<static_cast<unsigned>((size + 127) / 128), 128>>>(
          gradients.get(), size, z, r.bf16, o.heads, o.head_dim);
    };
    multiply(dq, b.pre_q);
    multiply(dk, b.pre_k);
    multiply(dv, b.pre_v);
  }
  must(cudaDeviceSynchronize(), "reference");
  const double bound = o.dtype == DType::bf16 ? 0.012 : 0.0025;
  int failures = 0;
  const auto report = [&](const char* what, double error, const std::string& note) {
    if (error <= bound) return;
    ++failures;
    std::printf("FAILED %-28s d=%-3d %s %-10s error %.4g%s\n", name, o.head_dim, name_of(o.dtype),
                what, error, note.c_str());
    std::fflush(stdout);
  };
  const auto report_heads = [&](const char* what, const Heads& heads, const Buffer<double>& want) {
    std::string note;
    const double error = error_of(p, heads, want, note);
    report(what, error, note);
  };
  p.forward();
  must(cudaDeviceSynchronize(), name);
  report_heads("out", p.out, out);
  if (!backward) return failures;
  p.workspace.fill(0xff);
  p.backward();
  must(cudaDeviceSynchronize(), name);
  report_heads("dq", p.dq, dq);
  report_heads("dk", p.dk, dk);
  report_heads("dv", p.dv, dv);
  if (o.position) report("d_position", error_of(p.d_position, d_position), "");
  if (o.time) report("d_time", error_of(p.d_weights, d_weights), "");
  if (o.deterministic) {
    const auto first = p.dq.buffer.host();
    const auto first_position = p.d_position.host(), first_time = p.d_weights.host();
    p.poison();
    p.backward();
    must(cudaDeviceSynchronize(), name);
    if (first != p.dq.buffer.host()) report("dq twice", INFINITY, "");
    if (o.position && first_position != p.d_position.host())
      report("d_position twice", INFINITY, "");
    if (o.time && first_time != p.d_weights.host()) report("d_time twice", INFINITY, "");
  }
  return failures;
}

// The cases whose number is `part` modulo `parts`.
struct Share {
  int part = 0, parts = 1;
};

// only_head_dim: run only its cases; 0: all. Prints a line per failure; running no case is a
// failure.
inline int check_all(bool backward, bool only_bf16, int only_head_dim, Share share) {
  int failures = 0, number = 0, cases = 0;
  const std::vector<int> lengths = {0, 1, 300, 2, 63, 64, 65, 0, 127, 128, 129, 200, 17, 0};
  const auto run = [&](const char* name, Options o) {
    if (number++ % share.parts != share.part) return;
    if (o.keys.empty()) o.keys = lengths;
    if (o.queries.empty()) o.queries = o.keys;
    failures += check(name, o, backward);
    ++cases;
  };
  const auto counts = [](const std::vector<int>& keys, int most) {
    std::vector<int64_t> values;
    for (size_t b = 0; b < keys.size(); ++b)
      values.push_back(std::min<int64_t>(keys[b] / 2, static_cast<int64_t>(b * 5) % (most + 1)));
    return values;
  };
  for (const DType dtype : {DType::bf16, DType::f16}) {
    if (only_bf16 && dtype != DType::bf16) continue;
    for (const int head_dim : {32, 64, 128, 256, 8, 56, 96, 200, 50, 25, 1, 33, 77, 130}) {
      if (only_head_dim != 0 && head_dim != only_head_dim) continue;
      Options base;
      base.dtype = dtype;
      base.head_dim = head_dim;
      const bool whole = head_dim == 32 || head_dim == 64 || head_dim == 128 || head_dim == 256;
      for (const bool deterministic : {false, true}) {
        if (deterministic && !backward) continue;
        base.deterministic = deterministic;
        run("causal", base);
        Options o = base;
        o.causal = false;
        o.gap = 16;
        run("full, row gaps", o);
        o = base;
        o.int32_offsets = true;
        o.contexts = counts(lengths, 9);
        o.targets = counts(lengths, 60);
        o.group = 5;
        o.window = 40;
        o.full_rows = 11;
        o.gap = 3 * o.heads * head_dim;
        run("all of the mask", o);
        o = base;
        o.gap = 2 * o.heads * head_dim + 1;
        o.pre = true;
        o.causal = false;
        run("odd rows, silu' of q, k, v", o);
        o.gap = 8;
        run("silu' of q, k, v", o);
        if (!whole) continue;
        o.causal = false;
        run("all, not causal", o);
        o = base;
        o.window = 33;
        run("window", o);
        o.contexts = counts(lengths, 70);
        run("window, contexts", o);
        o = base;
        o.targets = counts(lengths, 100);
        run("targets", o);
        o.window = 150;
        o.group = 70;
        run("targets, groups, window", o);
        o = base;
        o.targets.assign(lengths.begin(), lengths.end());
        o.group = 5;
        run("targets alone", o);  // early query tiles see keys that later ones do not
        o = base;
        o.contexts = counts(lengths, 70);
        run("contexts", o);
        o = base;
        o.keys = {130, 300, 64, 1, 9, 500, 0, 260};
        o.queries = {1, 130, 0, 1, 9, 64, 0, 259};
        run("fewer queries", o);
        o.targets = counts(o.keys, 40);
        o.contexts = counts(o.keys, 20);
        o.window = 90;
        run("fewer queries, all", o);
        o.position = o.time = true;
        run("fewer queries, all, biases", o);
        o = base;
        o.position = true;
        run("position", o);
        o.causal = false;
        o.time = o.requests = true;
        run("biases, not causal", o);
        o = base;
        o.time = true;
        run("time", o);
        o = base;
        o.keys.assign(150, 3);
        for (size_t b = 0; b < o.keys.size(); ++b) o.keys[b] = static_cast<int>(b * 37 % 140);
        run("many sequences", o);
        // Blocks take several pieces, as above, whose first keys are not the sequence's.
        Options m = o;
        m.window = 33;
        run("many sequences, window", m);
        m = o;
        m.targets.assign(o.keys.begin(), o.keys.end());
        m.group = 5;
        run("many sequences, targets alone", m);
        m = o;
        for (int& keys : m.keys) keys += 130;
        run("many longer sequences", m);
        o.position = o.time = true;
        run("many sequences, biases", o);
        o.keys = {0, 0};
        run("empty", o);
      }
    }
  }
  std::printf("%d cases\n", cases);
  return cases > 0 ? failures : 1;
}

}  // namespace seqfuse::bench
