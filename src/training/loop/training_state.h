// Where a training run stands: all that a checkpoint holds besides tensors.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "models/hstu/model_spec.h"
#include "report/metrics.h"

namespace seqfuse::training {

struct TrainingState {
  int64_t step = 0;             // steps done
  int64_t batch = 0;            // batches consumed, over all epochs
  int64_t users_per_batch = 0;  // of all processes
  int64_t optimizer_steps = 0;  // steps that updated weights
  double seconds = 0;           // of training, evaluations left out

  // Since the last line of metrics.jsonl.
  double loss_sum = 0;
  int64_t loss_positions = 0;

  // Of float16 training: what losses are multiplied by, and the steps since it last changed.
  double loss_scale = 65536;
  int64_t loss_scale_steps = 0;

  // Early stopping. best_step -1: no evaluation yet.
  std::string watched;  // the metric
  int64_t best_step = -1;
  report::Metrics best_metrics;
  int64_t evaluations_since_best = 0;
};

// The "state" of a checkpoint: this, the seed, the model's spec and its weight layout.
nlohmann::json state_to_json(const TrainingState& state, const models::hstu::ModelSpec& spec,
                             int64_t seed);

// Throws DataError if the checkpoint is of another model (architecture, sizes, vocabulary, loss)
// than spec, naming the first field that differs, or of another seed. Parameters that may change
// when a run is resumed are not compared.
TrainingState state_from_json(const nlohmann::json& json, const models::hstu::ModelSpec& spec,
                              int64_t seed);

// For a run that goes on with new data: it begins with their first batch, and the best metrics, which
// were measured on the old data, are forgotten.
void begin_new_data(nlohmann::json& checkpoint_state);

// The first of these checks alone.
void check_same_model(const nlohmann::json& checkpoint_state, const models::hstu::ModelSpec& spec);

// For weights that another run begins with: throws DataError only if the vocabularies differ, since
// shapes are compared as weights are loaded (weights.h). Returns what else differs between the
// models' descriptions, "name: there, here" each.
std::vector<std::string> compare_with_weights(const nlohmann::json& checkpoint_state,
                                              const models::hstu::ModelSpec& spec);

}  // namespace seqfuse::training
