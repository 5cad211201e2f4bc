#include "tuning/features.h"

#include <array>
#include <cmath>

namespace seqfuse::tuning {
namespace {

using fusion::index_of;
using fusion::kGraph;
using fusion::kOps;
using fusion::Op;
using fusion::Scheme;
using fusion::Segment;

constexpr Segment kAttention{index_of(Op::qk), index_of(Op::transpose)};

double element_bytes(const Setting& setting) {
  if (setting.dtype == "float64") return 8;
  return setting.dtype == "float32" ? 4 : 2;
}

double rows_of(const Setting& setting) {
  return static_cast<double>(setting.batch) * static_cast<double>(setting.seq);
}

// Elements of an operator's output; kLayerInput: of the layer's input.
double elements(const Setting& setting, int op) {
  const double rows = rows_of(setting), hidden = static_cast<double>(setting.hidden);
  if (op == fusion::kLayerInput) return rows * hidden;
  switch (static_cast<Op>(op)) {
    case Op::gemm0:
    case Op::bias0_split:
      return 3 * rows * hidden;
    case Op::qk:
    case Op::mask:
    case Op::softmax:
      return rows * static_cast<double>(setting.seq) * static_cast<double>(setting.heads);
    case Op::gemm2:
    case Op::bias2_gelu:
      return rows * static_cast<double>(setting.inner);
    default:
      return rows * hidden;
  }
}

// The elements that a segment reads from outside it and those that it writes.
double moved(const Setting& setting, const Segment& segment) {
  double sum = elements(setting, segment.last);
  std::array<bool, kOps + 1> read{};  // by operator + 1
  for (int op = segment.first; op <= segment.last; ++op) {
    for (const int source : kGraph[static_cast<size_t>(op)].reads) {
      const bool outside = source != fusion::kNothing && source < segment.first;
      if (!outside || read[static_cast<size_t>(source + 1)]) continue;
      read[static_cast<size_t>(source + 1)] = true;
      sum += elements(setting, source);
    }
  }
  return sum;
}

}  // namespace

const std::vector<const char*>& feature_names() {
  static const std::vector<const char*> names{
      "log2(batch)", "log2(seq)", "log2(hidden)", "log2(heads)", "log2(inner)", "layers",
      "mask density", "bytes of an element",
      // of the scheme
      "attention written by hand", "segments", "log2(value bytes)", "value bytes to unfused",
      // whether an operator runs with the next one
      "gemm0 joined", "bias0+split joined", "QK joined", "mask joined", "softmax joined",
      "PV joined", "transpose joined", "gemm1 joined", "bias1+residual joined", "LN1 joined",
      "gemm2 joined", "bias2+GELU joined", "gemm3 joined", "bias3+residual joined"};
  return names;
}

double value_bytes(const Setting& setting, const Scheme& scheme) {
  double sum = 0;
  for (const Segment& segment : scheme.segments()) sum += moved(setting, segment);
  return sum * element_bytes(setting);
}

void append_features(const Setting& setting, const Scheme& scheme, std::vector<double>& row) {
  for (const int64_t size :
       {setting.batch, setting.seq, setting.hidden, setting.heads, setting.inner})
    row.push_back(std::log2(static_cast<double>(size)));
  row.push_back(static_cast<double>(setting.layers));
  row.push_back(setting.mask_density);
  row.push_back(element_bytes(setting));

  const bool by_hand = scheme.mha() == fusion::Mha::written_by_hand && scheme.has(kAttention);
  row.push_back(by_hand ? 1 : 0);
  row.push_back(static_cast<double>(scheme.segments().size()));
  const double bytes = value_bytes(setting, scheme);
  row.push_back(std::log2(bytes));
  row.push_back(bytes / value_bytes(setting, Scheme()));
  for (int op = 0; op + 1 < kOps; ++op) row.push_back(scheme.cut_after(op) ? 0 : 1);
}

double rough_milliseconds(const Setting& setting) {
  constexpr double kFlops = 3e14, kBytesPerSecond = 2e12, kLaunchSeconds = 3e-6, kLaunches = 8;
  const double rows = rows_of(setting), hidden = static_cast<double>(setting.hidden);
  const double products = 2 * rows * hidden * (4 * hidden + 2 * static_cast<double>(setting.inner));
  const double attention = 4 * rows * static_cast<double>(setting.seq) * hidden;
  const std::array<Segment, 1> by_hand{kAttention};
  const double bytes = value_bytes(setting, Scheme(by_hand, fusion::Mha::written_by_hand));
  const double seconds = (products + attention * setting.mask_density) / kFlops +
                         bytes / kBytesPerSecond + kLaunches * kLaunchSeconds;
  return static_cast<double>(setting.layers) * seconds * 1e3;
}

}  // namespace seqfuse::tuning
