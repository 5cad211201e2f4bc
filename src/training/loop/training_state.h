// The state of a training run: all that a checkpoint stores besides tensors.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "metrics/metrics.h"
#include "models/hstu/model_spec.h"

namespace seqfuse::training {

struct TrainingState {
  int64_t step = 0;             // steps done
  int64_t batch = 0;            // batches consumed, over all epochs
  int64_t users_per_batch = 0;  // over all processes
  int64_t optimizer_steps = 0;  // steps that updated weights
  double seconds = 0;           // of training, without evaluations

  // Since the last line of metrics.jsonl.
  double loss_sum = 0;
  int64_t loss_positions = 0;

  // float16 only: LossScale of device_step.h.
  double loss_scale = 65536;
  int64_t loss_scale_steps = 0;

  // Early stopping. best_step -1: no evaluation yet.
  std::string watched;  // the metric
  int64_t best_step = -1;
  metrics::Metrics best_metrics;
  int64_t evaluations_since_best = 0;
};

// The "state" of a checkpoint: this, the seed, the model's spec and its weight layout.
nlohmann::json state_to_json(const TrainingState& state, const models::hstu::ModelSpec& spec,
                             int64_t seed);

// Throws DataError if the checkpoint is of another model than spec (architecture, sizes,
// vocabulary, loss), naming the first field that differs, or of another seed. Ignores parameters
// that may change on resume.
TrainingState state_from_json(const nlohmann::json& json, const models::hstu::ModelSpec& spec,
                              int64_t seed);

// For a run that continues on new data: it starts at their first batch, and forgets the best metrics,
// which were measured on the old data.
void begin_new_data(nlohmann::json& checkpoint_state);

// The first of these checks alone.
void check_same_model(const nlohmann::json& checkpoint_state, const models::hstu::ModelSpec& spec);

// For starting from another run's weights: throws DataError only if the vocabularies differ, since
// weights.h compares shapes when loading. Returns the other differences between the models'
// descriptions, "name: there, here" each.
std::vector<std::string> compare_with_weights(const nlohmann::json& checkpoint_state,
                                              const models::hstu::ModelSpec& spec);

}  // namespace seqfuse::training
