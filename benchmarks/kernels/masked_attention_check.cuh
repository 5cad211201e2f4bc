// The kernels of attention under a mask against float64. Each element has its own bound, from the
// roundings that 16-bit weights and results imply.
#pragma once

#include <cmath>
#include <string>

#include "base/parallel.h"
#include "benchmarks/kernels/masked_attention_problem.cuh"
#include "benchmarks/kernels/masked_lists.cuh"

namespace seqfuse::bench {

// Results and bounds [batch, heads, rows, head_dim], lse [batch, heads, queries].
struct MaskedReference {
  std::vector<double> out, out_bound, lse, dq, dq_bound, dk, dk_bound, dv, dv_bound;
};

// Rounding of a 16-bit number; the smallest float16 numbers are spaced 2^-24.
inline double unit_of(bool bf16) {
  return bf16 ? 0x1p-8 : 0x1p-11;
}
constexpr double kTiny = 0x1p-24;

inline MaskedReference reference_of(const MaskedProblem& p) {
  const int64_t n = p.mask.queries(), m = p.mask.keys(), d = p.s.head_dim;
  const int64_t heads = p.s.heads, key_heads = p.s.key_heads, group = heads / key_heads;
  const auto q = p.q.host(), k = p.k.host(), v = p.v.host(), dout = p.dout.host();
  const std::vector<float> dlse = p.dlse.host();
  const std::vector<uint8_t> dense = p.mask.dense();
  const double u = unit_of(p.bf16), scale = p.scale();
  MaskedReference r;
  for (auto* x : {&r.out, &r.out_bound, &r.dq, &r.dq_bound}) x->assign(q.size(), 0);
  for (auto* x : {&r.dk, &r.dk_bound, &r.dv, &r.dv_bound}) x->assign(k.size(), 0);
  r.lse.assign(static_cast<size_t>(p.s.batch * heads * n), -INFINITY);
  parallel_tasks(p.s.batch * key_heads, [&](int64_t task) {
    const int64_t b = task / key_heads, kh = task % key_heads;
    const double *keys = k.data() + task * m * d, *values = v.data() + task * m * d;
    double *dk = r.dk.data() + task * m * d, *dv = r.dv.data() + task * m * d;
    double* dk_bound = r.dk_bound.data() + task * m * d;
    double* dv_bound = r.dv_bound.data() + task * m * d;
    std::vector<double> s(static_cast<size_t>(m));
    for (int64_t h = kh * group; h < (kh + 1) * group; ++h) {
      for (int64_t i = 0; i < n; ++i) {
        const int64_t row = (b * heads + h) * n + i;
        const double *qi = q.data() + row * d, *gi = dout.data() + row * d;
        double *out = r.out.data() + row * d, *out_bound = r.out_bound.data() + row * d;
        double *dq = r.dq.data() + row * d, *dq_bound = r.dq_bound.data() + row * d;
        const uint8_t* sees = dense.data() + ((p.mask.batch() == 1 ? 0 : b) * n + i) * m;
        double most = -INFINITY, total = 0;
        for (int64_t j = 0; j < m; ++j) {
          if (!sees[j]) continue;
          double dot = 0;
          for (int64_t c = 0; c < d; ++c) dot += qi[c] * keys[j * d + c];
          s[j] = dot * scale;
          most = std::max(most, s[j]);
        }
        if (most == -INFINITY) continue;
        for (int64_t j = 0; j < m; ++j)
          if (sees[j]) total += std::exp(s[j] - most);
        const double lse = r.lse[row] = most + std::log(total);
        for (int64_t j = 0; j < m; ++j) {
          if (!sees[j]) continue;
          const double w = std::exp(s[j] - lse);
          for (int64_t c = 0; c < d; ++c) {
            out[c] += w * values[j * d + c];
            out_bound[c] += (u * w + kTiny) * std::abs(values[j * d + c]);
          }
        }
        double delta = -dlse[row], delta_bound = 0;
        for (int64_t c = 0; c < d; ++c) {
          out_bound[c] += u * std::abs(out[c]);
          delta += gi[c] * out[c];
          delta_bound += std::abs(gi[c]) * out_bound[c];
        }
        for (int64_t j = 0; j < m; ++j) {
          if (!sees[j]) continue;
          const double w = std::exp(s[j] - lse);
          double product = 0;
          for (int64_t c = 0; c < d; ++c) product += gi[c] * values[j * d + c];
          const double ds = w * (product - delta);
          const double ds_bound = u * std::abs(ds) + w * delta_bound + kTiny;
          for (int64_t c = 0; c < d; ++c) {
            dq[c] += scale * ds * keys[j * d + c];
            dq_bound[c] += scale * ds_bound * std::abs(keys[j * d + c]);
            dk[j * d + c] += scale * ds * qi[c];
            dk_bound[j * d + c] += scale * ds_bound * std::abs(qi[c]);
            dv[j * d + c] += w * gi[c];
            dv_bound[j * d + c] += (u * w + kTiny) * std::abs(gi[c]);
          }
        }
      }
    }
  });
  const auto round = [&](std::vector<double>& bound, const std::vector<double>& of) {
    for (size_t i = 0; i < of.size(); ++i) bound[i] += u * std::abs(of[i]);
  };
  round(r.dq_bound, r.dq);
  round(r.dk_bound, r.dk);
  round(r.dv_bound, r.dv);
  return r;
}

// The largest error as a share of its bound; above 1, or NaN: wrong. slack: for float32 sums.
inline double worst(const std::vector<double>& ours, const std::vector<double>& expected,
                    const std::vector<double>& bound) {
  double share = 0;
  for (size_t i = 0; i < ours.size(); ++i) {
    const double error = std::abs(ours[i] - expected[i]) / (1.05 * bound[i] + 1e-5);
    if (!(error <= share)) share = error;
    if (std::isnan(share)) return share;
  }
  return share;
}

inline int check_masked(const std::string& name, const masks::Mask& mask, const MaskedSizes& s,
                        bool bf16, bool backward) {
  MaskedProblem p(mask, s, bf16, Purpose::check);
  const MaskedReference expected = reference_of(p);
  p.forward();
  if (backward) p.backward();
  must(cudaDeviceSynchronize(), name.c_str());
  int failures = 0;
  const auto expect = [&](const char* what, double share) {
    const bool good = share <= 1;
    if (!good) ++failures;
    if (!good)
      std::printf("FAILED %s %ld x %ld batch %ld heads %ld/%ld d %ld %s: %s is %.3g of its bound\n",
                  name.c_str(), static_cast<long>(mask.queries()), static_cast<long>(mask.keys()),
                  static_cast<long>(s.batch), static_cast<long>(s.heads),
                  static_cast<long>(s.key_heads), static_cast<long>(s.head_dim),
                  bf16 ? "bf16" : "f16", what, share);
  };
  const auto expect_forward = [&](const std::string& by) {
    expect(("out" + by).c_str(), worst(p.out.host(), expected.out, expected.out_bound));
    double lse_share = 0;
    const std::vector<float> lse = p.lse.host();
    for (size_t i = 0; i < lse.size(); ++i) {
      const double e = expected.lse[i];
      const double share =
          std::isinf(e) ? (lse[i] == e ? 0 : 2) : std::abs(lse[i] - e) / (3e-5 * (1 + std::abs(e)));
      if (!(share <= lse_share)) lse_share = share;
    }
    expect(("lse" + by).c_str(), lse_share);
  };
  expect_forward("");
  const auto out = p.out.host();
  if (backward) {
    expect("dq", worst(p.dq.host(), expected.dq, expected.dq_bound));
    expect("dk", worst(p.dk.host(), expected.dk, expected.dk_bound));
    expect("dv", worst(p.dv.host(), expected.dv, expected.dv_bound));
    // The same bits again: no sum has a changing order.
    const auto before = std::vector{out, p.dq.host(), p.dk.host(), p.dv.host()};
    for (MaskedTensor* t : {&p.out, &p.dq, &p.dk, &p.dv}) t->poison();
    p.forward();
    p.backward();
    must(cudaDeviceSynchronize(), name.c_str());
    expect("a second run",
           before == std::vector{p.out.host(), p.dq.host(), p.dk.host(), p.dv.host()} ? 0.0 : 2.0);
  }
  p.out.poison();
  p.lse.fill(0xff);
  p.forward_by_rows();
  must(cudaDeviceSynchronize(), name.c_str());
  expect_forward(" by rows");
  return failures;
}
struct MaskedKind {
  const char* name;
  masks::Mask (*make)(int64_t queries, int64_t keys);  // 2 sequences, or any number
  bool sparse = false;
};

inline const std::vector<MaskedKind>& masked_kinds() {
  using namespace masks;
  static const std::vector<MaskedKind> all = {
      {"full", full},
      {"causal", causal},
      {"sliding", [](int64_t q, int64_t k) { return window(q, k, 64, 64); }, true},
      {"dilated", [](int64_t q, int64_t k) { return dilated(q, k, 256, 256, 4); }, true},
      {"longformer", [](int64_t q, int64_t k) { return longformer(q, k, 20, 3); }, true},
      {"bigbird", [](int64_t q, int64_t k) { return bigbird(q, k, 20, 3, 1, 1); }, true},
      {"window and padding",
       [](int64_t q, int64_t k) {
         return window(q, k, 70, 70) &
                lengths(q, k, std::vector<int64_t>{q / 2, q}, std::vector<int64_t>{k / 2, k});
       }},
      {"all padded",
       [](int64_t q, int64_t k) {
         return lengths(q, k, std::vector<int64_t>{0, q}, std::vector<int64_t>{k, 0});
       }},
      {"documents",
       [](int64_t q, int64_t k) { return documents(q, k, {{k / 3, 0, k / 4}, {k - k / 5}}); }},
      {"dense",
       [](int64_t q, int64_t k) {
         std::vector<uint8_t> allowed(static_cast<size_t>(2 * q * k));
         for (size_t i = 0; i < allowed.size(); ++i) allowed[i] = i * i % 7 == 2;
         return from_dense(2, q, k, allowed);
       }},
  };
  return all;
}

inline int check_all_lists() {
  int failures = 0, cases = 0;
  using Lengths = std::pair<int64_t, int64_t>;
  for (const MaskedKind& kind : masked_kinds()) {
    for (const auto& [queries, keys] : {Lengths{0, 0},
                                        {1, 1},
                                        {64, 64},
                                        {65, 65},
                                        {1000, 1000},
                                        {5, 200},
                                        {200, 70},
                                        {0, 65},
                                        {65, 0},
                                        {2100, 4100}}) {
      const std::string wrong = ListsOnGpu(kind.make(queries, keys)).difference();
      ++cases;
      if (wrong.empty()) continue;
      ++failures;
      std::printf("FAILED %s %ld x %ld: the GPU's %s differs from the host's\n", kind.name,
                  static_cast<long>(queries), static_cast<long>(keys), wrong.c_str());
    }
  }
  std::printf("lists made on the GPU: %d cases, %d failures\n", cases, failures);
  return failures;
}

// head_dim 0: all. quick: short sequences only.
inline int check_all_masked(bool backward, bool bf16, int head_dim, bool quick) {
  int failures = 0;
  for (const int64_t d : {32, 40, 64, 72, 80, 96, 104, 128}) {
    if (head_dim > 0 && d != head_dim) continue;
    int cases = 0;
    for (const MaskedKind& kind : masked_kinds()) {
      for (const int64_t n : {1, 7, 63, 64, 65, 127, 1000, 1025, 4096}) {
        if (n > 127 && quick) continue;
        // Of 4096 only masks with few elements: float64 on the host takes long.
        if (n == 4096 && (d != 64 || !kind.sparse)) continue;
        const MaskedSizes sizes = n > 1000 ? MaskedSizes{2, 1, 1, d} : MaskedSizes{2, 2, 2, d};
        failures += check_masked(kind.name, kind.make(n, n), sizes, bf16, backward);
        ++cases;
      }
      for (const auto& [queries, keys] : {std::pair<int64_t, int64_t>{5, 200}, {200, 70}}) {
        failures += check_masked(kind.name, kind.make(queries, keys), {2, 6, 2, d}, bf16, backward);
        ++cases;
      }
    }
    std::printf("head_dim %3ld %s: %d cases, %d failures so far\n", static_cast<long>(d),
                bf16 ? "bf16" : "f16", cases, failures);
    std::fflush(stdout);
  }
  return failures;
}

}  // namespace seqfuse::bench
