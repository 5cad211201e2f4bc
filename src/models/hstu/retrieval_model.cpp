#include "models/hstu/retrieval_model.h"

#include <algorithm>
#include <vector>

#include "models/hstu/encoder.h"
#include "models/hstu/tables.h"
#include "models/hstu/windows.h"
#include "ops/torch/ops.h"

namespace seqfuse::models::hstu {
namespace {

// The prediction targets of a window: all its events but the first.
std::vector<int64_t> next_items(const data::Batch& batch) {
  std::vector<int64_t> items;
  items.reserve(batch.items.size());
  for (int64_t b = 0; b < batch.batch_size(); ++b) {
    const int64_t begin = batch.offsets[b], end = batch.offsets[b + 1];
    if (begin < end) {
      items.insert(items.end(), batch.items.begin() + begin + 1, batch.items.begin() + end);
    }
  }
  return items;
}

// The rows of a large table that a step needs, and ids as indices into them.
struct TouchedRows {
  at::Tensor rows;       // int64 [R], ascending
  at::Tensor targets;    // int64 [P]
  at::Tensor negatives;  // int32 [P, K]
};

TouchedRows touched_rows(const at::Tensor& targets, const at::Tensor& negatives, int64_t num_rows) {
  if (targets.is_cuda()) {
    // Reading the number of rows synchronises: with a large table, a step waits for the GPU here.
    const auto [rows, places] = at::_unique(at::cat({targets, negatives.flatten().to(at::kLong)}),
                                            /*sorted=*/true, /*return_inverse=*/true);
    return {rows, places.slice(0, 0, targets.numel()),
            places.slice(0, targets.numel()).to(at::kInt).view(negatives.sizes())};
  }
  std::vector<int32_t> position(num_rows, -1);
  const at::Tensor dense_negatives = negatives.contiguous();
  const int64_t* target = targets.const_data_ptr<int64_t>();
  const int32_t* negative = dense_negatives.const_data_ptr<int32_t>();
  for (int64_t i = 0; i < targets.numel(); ++i) position.at(target[i]) = 0;
  for (int64_t i = 0; i < negatives.numel(); ++i) position.at(negative[i]) = 0;
  std::vector<int64_t> rows;
  for (int64_t row = 0; row < num_rows; ++row) {
    if (position[row] < 0) continue;
    position[row] = static_cast<int32_t>(rows.size());
    rows.push_back(row);
  }
  TouchedRows touched{torch::tensor(at::ArrayRef<int64_t>(rows), torch::kLong),
                      at::empty_like(targets), at::empty_like(dense_negatives)};
  std::transform(target, target + targets.numel(), touched.targets.mutable_data_ptr<int64_t>(),
                 [&](int64_t id) { return position[id]; });
  std::transform(negative, negative + negatives.numel(),
                 touched.negatives.mutable_data_ptr<int32_t>(),
                 [&](int32_t id) { return position[id]; });
  return touched;
}

class HstuRetrievalModel : public RetrievalModel {
 public:
  HstuRetrievalModel(const ModelSpec& spec, Initializer init,
                     const embeddings::Placement& placement)
      : spec_(spec),
        tables_(register_module("tables", std::make_shared<Tables>(spec, init, placement))),
        encoder_(register_module("encoder", Encoder::make(spec, tables_, init))),
        catalogue_(torch::arange(1, spec.num_items + 1)) {}

  const ModelSpec& spec() const override { return spec_; }
  embeddings::Tables tables() const override { return tables_->all(); }

  Windows upload(const data::Batch& batch, const StepInputs& inputs) override {
    const PredictedEvents predicted{.items = next_items(batch), .actions = {}, .windows = {}};
    return make_windows(batch, Reading::next_item, tables_->device(), predicted, inputs);
  }

  at::Tensor losses(const Windows& windows, const StepSeed& seed,
                    const at::Tensor& negatives) override {
    const at::Tensor& targets = windows.predicted_items;
    const double temperature = spec_.retrieval.temperature;
    if (!negatives.defined() && spec_.retrieval.negatives == config::Negatives::full) {
      tables_->fetch_with_all_items(windows);
      const bool mask = spec_.retrieval.mask_seen;
      return ops::full_softmax_loss(hidden_states(windows, seed), normalize(tables_->item->rows()),
                                    targets, catalogue(), temperature,
                                    mask ? windows.items : ops::OptionalTensor(),
                                    mask ? windows.history_offsets : ops::OptionalTensor());
    }
    const at::Tensor drawn =
        negatives.defined() ? negatives.to(tables_->device()) : draw_negatives(targets, seed);
    const EmbeddingTable& item = *tables_->item;
    if (item.weight().defined() && !item.is_sharded() &&
        item.num_rows() < embeddings::kSparseTableRows) {
      tables_->fetch(windows);
      return ops::sampled_softmax_loss(hidden_states(windows, seed), normalize(item.rows()),
                                       targets, drawn, temperature);
    }
    const TouchedRows touched = touched_rows(targets, drawn, item.num_rows());
    tables_->fetch(windows, touched.rows);
    return ops::sampled_softmax_loss(hidden_states(windows, seed),
                                     normalize(tables_->item->lookup(touched.rows)),
                                     touched.targets, touched.negatives, temperature);
  }

  at::Tensor query(const data::Batch& batch) override {
    const Windows windows = make_windows(batch, Reading::query, tables_->device());
    tables_->fetch(windows);
    const at::Tensor states = encoder_->forward(windows, {}).history.to(tables_->dtype());
    const at::Tensor lengths = windows.history_offsets.diff();
    if (states.size(0) == 0) return states.new_zeros({windows.batch_size(), states.size(1)});
    const at::Tensor last = (windows.history_offsets.slice(0, 1) - 1).clamp_min(0);
    // A window without history gets 0, which scores all items equally.
    const at::Tensor known = (lengths > 0).unsqueeze(1).to(states.scalar_type());
    return normalize(states.index_select(0, last)) * known;
  }

  at::Tensor item_rows() override {
    tables_->item->fetch_all();
    return normalize(tables_->item->rows());
  }

 private:
  // L2-normalised, in the tables' dtype.
  at::Tensor hidden_states(const Windows& windows, const StepSeed& seed) {
    return normalize(encoder_->forward(windows, seed).history.to(tables_->dtype()));
  }

  const at::Tensor& catalogue() {
    if (catalogue_.device() != tables_->device()) catalogue_ = catalogue_.to(tables_->device());
    return catalogue_;
  }

  at::Tensor normalize(const at::Tensor& rows) const {
    return ops::l2_normalize(rows, spec_.retrieval.l2_norm_eps);
  }

  at::Tensor draw_negatives(const at::Tensor& targets, const StepSeed& seed) {
    const int64_t positions = targets.size(0);
    const bool in_batch = spec_.retrieval.negatives == config::Negatives::in_batch;
    const int64_t per_position =
        spec_.retrieval.num_negatives > 0 ? spec_.retrieval.num_negatives : positions;
    const at::Tensor pool = in_batch ? std::get<0>(at::_unique(targets)) : catalogue();
    return ops::sample_uniform(pool, positions, per_position, seed.derive(kNegativesSite));
  }

  ModelSpec spec_;
  std::shared_ptr<Tables> tables_;
  std::shared_ptr<Encoder> encoder_;
  at::Tensor catalogue_;  // int64 [num_items]
};

}  // namespace

at::Tensor RetrievalModel::losses(const data::Batch& batch, const StepSeed& seed,
                                  const at::Tensor& negatives) {
  return losses(upload(batch), seed, negatives);
}

at::Tensor RetrievalModel::training_losses(const Windows& windows, const StepSeed& seed) {
  return losses(windows, seed, {});
}

std::shared_ptr<RetrievalModel> make_retrieval_model(const ModelSpec& spec,
                                                     std::optional<uint64_t> seed,
                                                     torch::ScalarType dtype,
                                                     const embeddings::Placement& placement) {
  return std::make_shared<HstuRetrievalModel>(spec, Initializer(seed, dtype), placement);
}

}  // namespace seqfuse::models::hstu
