#include "serving/encoding/attention_sparsity.h"

#include <array>
#include <limits>
#include <utility>

#include "base/error.h"

namespace seqfuse::serving {
namespace {

using at::Tensor;
using models::bert::LayerRun;
using models::bert::Op;
using models::bert::Program;
using models::bert::Segment;

// Sums over all sentences, on the model's device.
class SparsitySums {
 public:
  SparsitySums(const models::bert::Model& model, std::vector<double> thresholds)
      : thresholds_(std::move(thresholds)), layers_(model.config().num_layers) {
    const auto options = at::TensorOptions(model.device()).dtype(at::kDouble);
    const auto count = static_cast<int64_t>(thresholds_.size());
    below_ = at::zeros({count, layers_, model.config().num_heads}, options);
    mass_ = at::zeros_like(below_);
  }

  // probabilities: [1, heads, length, length] of the layer after the one of the last call. mask: bool
  // [1, 1, length, length].
  void add(const Tensor& probabilities, const Tensor& mask) {
    const int64_t layer = calls_++ % layers_;
    const Tensor forbidden = mask.logical_not();
    for (size_t t = 0; t < thresholds_.size(); ++t) {
      const Tensor below = probabilities.lt(thresholds_[t]).masked_fill_(forbidden, false);
      const auto slot = [&](Tensor& sums) { return sums[static_cast<int64_t>(t)][layer]; };
      slot(below_).add_(below.sum({0, 2, 3}));
      slot(mass_).add_(
          probabilities.masked_fill(below.logical_not(), 0).sum({0, 2, 3}, false, at::kDouble));
    }
  }

  static std::vector<double> on_host(const Tensor& sums, int64_t divisor) {
    const Tensor means = divisor == 0
                             ? at::full_like(sums, std::numeric_limits<double>::quiet_NaN())
                             : sums / static_cast<double>(divisor);
    const Tensor host = means.cpu().contiguous();
    return {host.const_data_ptr<double>(), host.const_data_ptr<double>() + host.numel()};
  }
  const Tensor& below() const { return below_; }
  const Tensor& mass() const { return mass_; }

 private:
  std::vector<double> thresholds_;
  int64_t layers_;
  Tensor below_, mass_;  // [thresholds, layers, heads]
  int64_t calls_ = 0;
};

// The reference program, whose softmax also goes to the sums.
Program watched_program(SparsitySums& sums) {
  std::vector<Segment> segments(models::bert::unfused().segments().begin(),
                                models::bert::unfused().segments().end());
  for (Segment& segment : segments) {
    if (segment.last != Op::softmax) continue;
    segment.run = [&sums, run = segment.run](const LayerRun& layer) {
      Tensor probabilities = run(layer);
      sums.add(probabilities, layer.dense_mask);
      return probabilities;
    };
  }
  return Program(std::move(segments));
}

}  // namespace

double AttentionSparsity::of_layer(const std::vector<double>& values, size_t threshold,
                                   int64_t layer) const {
  double sum = 0;
  for (int64_t head = 0; head < heads; ++head) sum += of(values, threshold, layer, head);
  return sum / static_cast<double>(heads);
}

std::optional<AttentionSparsity> attention_sparsity(
    const models::bert::Model& model, const models::bert::SequenceMask& mask,
    std::span<const std::vector<int64_t>> sentences, std::vector<double> thresholds,
    const std::function<bool(int64_t)>& on_sentence) {
  for (const double threshold : thresholds) {
    SEQFUSE_CHECK_AS(UsageError, threshold > 0 && threshold <= 1,
                     "a threshold of attention is {}; expected one above 0, at most 1", threshold);
  }
  const at::NoGradGuard no_grad;
  AttentionSparsity result{.thresholds = thresholds,
                           .layers = model.config().num_layers,
                           .heads = model.config().num_heads};
  SparsitySums sums(model, std::move(thresholds));
  const Program program = watched_program(sums);
  int64_t queries = 0;  // that see a key
  for (const std::vector<int64_t>& ids : sentences) {
    const std::array<int64_t, 1> lengths{static_cast<int64_t>(ids.size())};
    const at::Device device = model.device();
    const auto rows = models::bert::Rows::jagged(lengths, mask, device);
    model.states({at::tensor(ids, at::kLong).to(device), Tensor(),
                  models::bert::positions_of(lengths, device)},
                 rows, program);
    const Tensor dense = rows.dense_mask(at::kCPU);
    result.pairs += dense.sum().item<int64_t>();
    queries += dense.any(-1).sum().item<int64_t>();
    result.tokens += lengths[0];
    ++result.sentences;
    if (on_sentence && !on_sentence(result.sentences)) return std::nullopt;
  }
  result.share = SparsitySums::on_host(sums.below(), result.pairs);
  result.mass = SparsitySums::on_host(sums.mass(), queries);
  return result;
}

}  // namespace seqfuse::serving
