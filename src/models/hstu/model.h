// The two tasks over the two HSTU architectures, as modules that take jagged batches.
#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/args.h"
#include "data/batch/batch.h"
#include "data/dataset/dataset.h"
#include "embeddings/table.h"

namespace seqfuse::models {

enum class Task { ranking, retrieval };

// Everything that determines shapes and maths. Goes into the checkpoint; a model is rebuilt from
// it.
struct ModelSpec {
  Task task = Task::retrieval;
  config::NetworkArgs network;
  config::RankingArgs ranking;
  config::RetrievalArgs retrieval;
  int64_t max_history = 0, max_candidates = 0;
  int64_t scaling_seqlen = 0;  // S, resolved
  int64_t num_items = 0;       // item ids are 1..num_items; tables have num_items + 1 rows
  int64_t num_actions = 0;     // 0: no actions
  std::vector<data::ContextFeature> context;
  std::string dataset_hash;  // of the vocabularies

  // What the model reads of events besides their items, and of users.
  bool reads_times() const;
  bool reads_actions() const;
  bool reads_context() const;

  // Throws UsageError where config and dataset disagree (more classes in the data than in the
  // head...).
  static ModelSpec make(Task task, const config::Config& config, const data::Manifest& manifest);
};

// What tokens are computed in: on the CPU the dtype of the weights; on a GPU NetworkArgs.dtype_str,
// while weights, tables and losses stay float32.
torch::ScalarType compute_dtype(const ModelSpec& spec, const torch::Tensor& weights);

// Positions of the model's input for so many windows that hold so many events of history and
// candidates in all.
int64_t num_tokens(const ModelSpec& spec, int64_t windows, int64_t history, int64_t candidates);

// Positions of the model's input in a training batch: what a rate in tokens/s counts.
int64_t num_tokens(const ModelSpec& spec, const data::Batch& batch);

// Where in a step random numbers are drawn; the other layers follow the first.
enum SeedSite : uint64_t { kNegativesSite = 0, kInputDropoutSite = 1, kFirstLayerSite = 16 };

// Where a step's random numbers come from: the same (seed, step) gives the same dropout and
// negatives.
struct StepSeed {
  uint64_t seed = 0;
  int64_t step = 0;  // with gradient accumulation: counts batches
  int64_t rank = 0;  // of the process, each of which has its own numbers

  // The seed of one place in a step where random numbers are drawn.
  int64_t derive(uint64_t site) const;
  // Those of all places in a model of spec.
  std::vector<int64_t> all(const ModelSpec& spec) const;
};

// What a step that is replayed as a CUDA graph reads from the device, since it changes from step to
// step: it travels with the batch. Empty for other steps.
struct StepInputs {
  std::vector<int64_t> seeds;          // StepSeed::all
  std::vector<int64_t> num_positions;  // one: the losses that count are the first ones
};
struct Windows;  // a batch on the model's device, models/hstu/windows.h

// Of several processes, each must call what takes a batch as often as the others (or
// embeddings::fetch_nothing), and item_rows() as well.
class Model : public torch::nn::Module {
 public:
  virtual const ModelSpec& spec() const = 0;
  // A training batch for loss() or forward(), on its way to the model's device.
  virtual Windows upload(const data::Batch& batch, const StepInputs& inputs = {}) = 0;
  // In the order in which a batch fetches rows. Their weights are parameters "tables.NAME".
  virtual embeddings::Tables tables() const { return {}; }
};

class RetrievalModel : public Model {
 public:
  // Loss per predicted position [P] over all windows of the batch: the state after event i predicts
  // event i + 1. negatives: int32 [P, K] item ids, or undefined to sample as the spec says.
  virtual torch::Tensor loss(const Windows& windows, const StepSeed& seed,
                             const torch::Tensor& negatives = {}) = 0;
  torch::Tensor loss(const data::Batch& batch, const StepSeed& seed,
                     const torch::Tensor& negatives = {});
  // [B, D], L2-normalised: the state after each window's history (its events less num_candidates).
  // The time of the first candidate, if there is one, is the time of the request.
  virtual torch::Tensor query(const data::Batch& batch) = 0;
  // [num_items + 1, D], L2-normalised; row 0 is the unknown item.
  virtual torch::Tensor item_rows() = 0;
};

class RankingModel : public Model {
 public:
  struct Output {
    torch::Tensor logits;   // [P, width of the head]
    torch::Tensor labels;   // tasks: float [P, num_tasks] of 0 and 1; classes: int64 [P]
    torch::Tensor items;    // int64 [P]
    torch::Tensor windows;  // int64 [P]: which window of the batch
  };
  // P: the candidates of all windows; or all events, if the spec's max_candidates is 0 and no
  // window of the batch has candidates.
  virtual Output forward(const Windows& windows, const StepSeed& seed) = 0;
  Output forward(const data::Batch& batch, const StepSeed& seed);
  // Loss per position and task [P, num_tasks] (classes: [P, 1]).
  virtual torch::Tensor loss(const Output& output) = 0;
};

// Weights are initialised from seed, on the CPU: move the module with to(). Without a seed they are
// to be loaded (training/checkpoint/weights.h). dtype: float32 or float64.
std::shared_ptr<RetrievalModel> make_retrieval_model(const ModelSpec& spec,
                                                     std::optional<uint64_t> seed,
                                                     torch::ScalarType dtype = torch::kFloat,
                                                     const embeddings::Placement& placement = {});
std::shared_ptr<RankingModel> make_ranking_model(const ModelSpec& spec,
                                                 std::optional<uint64_t> seed,
                                                 torch::ScalarType dtype = torch::kFloat,
                                                 const embeddings::Placement& placement = {});

}  // namespace seqfuse::models
