#include "models/hstu/encoder.h"

#include <cmath>
#include <utility>

#include "models/common/mlp.h"
#include "models/hstu/step_inputs.h"

namespace seqfuse::models::hstu {
namespace {

// Context, then item and action of each event in turn, then the candidates' items.
//
// The published pipeline also has an action token after each candidate. In a group of size 1, no
// token whose state is read sees it. Leaving it out changes no result, and a candidate's label can
// never reach a prediction; target_group_size counts candidates. All candidates share one position.
class HstuEncoder : public Encoder {
 public:
  HstuEncoder(const ModelSpec& spec, std::shared_ptr<Tables> tables, Initializer& init)
      : Encoder(spec, std::move(tables)) {
    const config::NetworkArgs& network = spec.network;
    const int64_t rows = network.num_position_buckets, width = network.hidden_size;
    position_ = register_parameter(
        "position", init.uniform({rows, width}, std::sqrt(1.0 / static_cast<double>(rows))));
    if (network.item_embedding_dim > 0) {
      item_mlp_ = register_module("item_mlp", make_mlp(network.item_embedding_dim, {width, width},
                                                       config::Activation::relu, true, init));
    }
    if (network.contextual_embedding_dim > 0 && !spec.context.empty()) {
      context_mlp_ =
          register_module("context_mlp", make_mlp(network.contextual_embedding_dim, {width, width},
                                                  config::Activation::relu, true, init));
    }
    add_layers(init);
  }

 private:
  bool has_actions() const { return tables_->action != nullptr; }

  at::Tensor event_rows(EmbeddingTable& table, const at::Tensor& ids) {
    const at::Tensor rows = table.lookup(ids);
    return item_mlp_.is_empty() ? rows : item_mlp_->forward(rows);
  }

  // [B * features, D], the features of each window adjacent.
  at::Tensor context_rows(const Windows& windows) {
    std::vector<at::Tensor> rows;
    for (size_t feature = 0; feature < tables_->context.size(); ++feature) {
      rows.push_back(tables_->context[feature]->lookup(windows.context[feature]));
    }
    const at::Tensor stacked = at::stack(rows, 1).flatten(0, 1);
    return context_mlp_.is_empty() ? stacked : context_mlp_->forward(stacked);
  }

  Tokens embed(const Windows& windows) override {
    const int64_t num_windows = windows.batch_size();
    const auto num_contexts = static_cast<int64_t>(tables_->context.size());
    const auto integers = windows.history_offsets.options();
    Tokens tokens;
    std::vector<at::Tensor> parts;
    const auto add_part = [&](const at::Tensor& rows, const at::Tensor& offsets) {
      parts.push_back(rows);
      tokens.part_offsets.push_back(offsets);
      tokens.part_rows.push_back(rows.size(0));
    };
    if (num_contexts > 0) {
      add_part(context_rows(windows), torch::arange(num_windows + 1, integers) * num_contexts);
    }
    const std::vector<at::Tensor> items =
        event_rows(*tables_->item, windows.items)
            .split_with_sizes({windows.num_history, windows.num_candidates});
    if (has_actions()) {
      add_part(ops::interleave(items[0], event_rows(*tables_->action, windows.actions)),
               windows.history_offsets * 2);
    } else {
      add_part(items[0], windows.history_offsets);
    }
    if (windows.num_candidates > 0) {
      add_part(items[1], windows.candidate_offsets);
      tokens.sequences.num_targets = windows.candidate_offsets.diff();
    }
    tokens.sequences.max_seqlen =
        num_contexts + windows.max_history * (has_actions() ? 2 : 1) + windows.max_candidates;
    if (context_sees_history(spec_)) {
      tokens.sequences.num_contexts = torch::full({num_windows}, num_contexts, integers);
    }
    at::Tensor offsets = tokens.part_offsets[0];
    for (size_t part = 1; part < parts.size(); ++part)
      offsets = offsets + tokens.part_offsets[part];
    tokens.sequences.offsets = offsets;
    const at::Tensor x =
        parts.size() == 1 ? parts[0] : ops::jagged_concat(parts, tokens.part_offsets);
    tokens.x = add_positions(x, position_, offsets, tokens.sequences.num_targets);
    return tokens;
  }

  States pick(const at::Tensor& x, const Tokens& tokens, const Windows& windows) override {
    std::vector<at::Tensor> parts{x};
    if (tokens.part_offsets.size() > 1) {
      parts = ops::jagged_split(x, tokens.part_offsets, tokens.part_rows);
    }
    const size_t history = tables_->context.empty() ? 0 : 1;
    States states{.history = parts[history], .candidates = {}};
    if (has_actions()) {
      states.history = states.history.view({windows.num_history, 2, x.size(1)}).select(1, 0);
    }
    states.candidates = history + 1 < parts.size() ? parts[history + 1] : x.narrow(0, 0, 0);
    return states;
  }

  at::Tensor position_;  // [num_position_buckets, D]
  torch::nn::Sequential item_mlp_{nullptr}, context_mlp_{nullptr};
};

// Items only, with learned positions at the input and a relative bias in every layer.
class HstuResearchEncoder : public Encoder {
 public:
  HstuResearchEncoder(const ModelSpec& spec, std::shared_ptr<Tables> tables, Initializer& init)
      : Encoder(spec, std::move(tables)) {
    const int64_t width = spec.network.hidden_size;
    position_ = register_parameter(
        "position", init.truncated_normal({spec.scaling_seqlen, width},
                                          std::sqrt(1.0 / static_cast<double>(width))));
    add_layers(init);
  }

 private:
  Tokens embed(const Windows& windows) override {
    Tokens tokens;
    tokens.sequences.offsets = windows.history_offsets;
    tokens.sequences.timestamps = windows.timestamps;
    tokens.sequences.request_times = windows.request_times;
    tokens.sequences.max_seqlen = windows.max_history;
    tokens.x = add_positions(tables_->item->lookup(windows.items), position_,
                             windows.history_offsets, std::nullopt);
    return tokens;
  }

  States pick(const at::Tensor& x, const Tokens&, const Windows&) override {
    return {.history = x, .candidates = x.narrow(0, 0, 0)};
  }

  at::Tensor position_;  // [N, D]
};

}  // namespace

Encoder::Encoder(const ModelSpec& spec, std::shared_ptr<Tables> tables)
    : spec_(spec),
      tables_(std::move(tables)),
      layers_(register_module("layers", torch::nn::ModuleList())) {}

// Table rows are summed in the table's dtype; from here on it is the layers' dtype.
at::Tensor Encoder::add_positions(const at::Tensor& x, const at::Tensor& table,
                                  const at::Tensor& offsets,
                                  const ops::OptionalTensor& num_targets) const {
  const double scale = std::sqrt(static_cast<double>(spec_.network.hidden_size));
  return ops::position_encoding(x, table, offsets, num_targets, scale).to(compute_dtype(spec_, x));
}

void Encoder::add_layers(Initializer& init) {
  const LayerOptions options = LayerOptions::of(spec_);
  for (int64_t i = 0; i < spec_.network.num_layers; ++i) {
    layers_->push_back(std::make_shared<HstuLayer>(options, init));
  }
}

States Encoder::forward(const Windows& windows, const StepSeed& seed) {
  const Tokens tokens = embed(windows);
  at::Tensor x = tokens.x;
  if (is_training()) {
    x = ops::dropout(x, spec_.network.hidden_dropout, seed.derive(kInputDropoutSite));
  }
  for (size_t i = 0; i < layers_->size(); ++i) {
    x = layers_->at<HstuLayer>(i).forward(x, tokens.sequences, seed.derive(kFirstLayerSite + i));
  }
  return pick(x, tokens, windows);
}

std::shared_ptr<Encoder> Encoder::make(const ModelSpec& spec, std::shared_ptr<Tables> tables,
                                       Initializer& init) {
  if (spec.network.architecture == config::Architecture::hstu_research) {
    return std::make_shared<HstuResearchEncoder>(spec, std::move(tables), init);
  }
  return std::make_shared<HstuEncoder>(spec, std::move(tables), init);
}

}  // namespace seqfuse::models::hstu
