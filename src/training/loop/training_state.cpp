#include "training/loop/training_state.h"

#include <fmt/format.h>

#include <limits>

#include "base/error.h"
#include "training/checkpoint/model_spec_json.h"
#include "training/loop/resumed_config.h"

namespace seqfuse::training {
using nlohmann::json;
namespace {

// The only layout so far; recorded so that a future one can be told apart.
constexpr const char* kUvqkLayout = "u|v|q|k, heads side by side in each";

// The numeric fields, listed once for both directions.
template <class State, class V>
void visit(State& state, V&& v) {
  v("step", state.step);
  v("batch", state.batch);
  v("users_per_batch", state.users_per_batch);
  v("optimizer_steps", state.optimizer_steps);
  v("seconds", state.seconds);
  v("loss_sum", state.loss_sum);
  v("loss_positions", state.loss_positions);
  v("loss_scale", state.loss_scale);
  v("loss_scale_steps", state.loss_scale_steps);
  v("best_step", state.best_step);
  v("evaluations_since_best", state.evaluations_since_best);
}

struct SpecDifference {
  std::string name, there, here;  // "NetworkArgs.num_layers", JSON of the values
};

// Compares a checkpoint's model with this one. Throws DataError if the vocabularies differ.
std::vector<SpecDifference> differences(const json& checkpoint_state,
                                        const models::hstu::ModelSpec& spec) {
  const json here = to_json(spec), there = checkpoint_state.value("spec", json::object());
  std::vector<SpecDifference> differences;
  const auto compare = [&](const std::string& name, const json& value, const json& other) {
    if (value != other) differences.push_back({name, other.dump(), value.dump()});
  };
  const std::string_view other_task = spec.task == models::hstu::Task::ranking
                                          ? config::RetrievalArgs::kName
                                          : config::RankingArgs::kName;
  for (const auto& [name, value] : here.items()) {
    if (name == other_task) continue;
    const json other = there.value(name, json(nullptr));
    if (!value.is_object()) {
      compare(name, value, other);
      continue;
    }
    for (const auto& [parameter, setting] : value.items()) {
      compare(name + "." + parameter, setting,
              other.is_object() ? other.value(parameter, json(nullptr)) : json(nullptr));
    }
  }
  if (there.value("dataset_hash", "") != spec.dataset_hash) {
    throw_error<DataError>(
        "the checkpoint was trained on a dataset with another vocabulary ({}, this one has {}): "
        "give the dataset that it was trained on, or train anew",
        there.value("dataset_hash", ""), spec.dataset_hash);
  }
  return differences;
}

}  // namespace

json state_to_json(const TrainingState& state, const models::hstu::ModelSpec& spec, int64_t seed) {
  json object = {{"spec", to_json(spec)}, {"seed", seed}, {"uvqk_layout", kUvqkLayout}};
  visit(state, [&](const char* name, const auto& value) { object[name] = value; });
  object["best_metrics"] = state.best_metrics;
  object["watched"] = state.watched;
  return object;
}

void begin_new_data(json& checkpoint_state) {
  const TrainingState anew;
  checkpoint_state["batch"] = anew.batch;
  checkpoint_state["best_step"] = anew.best_step;
  checkpoint_state["best_metrics"] = anew.best_metrics;
  checkpoint_state["evaluations_since_best"] = anew.evaluations_since_best;
}

void check_same_model(const json& checkpoint_state, const models::hstu::ModelSpec& spec) {
  for (const SpecDifference& difference : differences(checkpoint_state, spec)) {
    if (may_change_on_resume(difference.name)) continue;
    throw_error<DataError>(
        "the checkpoint is of another model: {} is {} there and {} in this configuration",
        difference.name, difference.there, difference.here);
  }
}

std::vector<std::string> compare_with_weights(const json& checkpoint_state,
                                              const models::hstu::ModelSpec& spec) {
  std::vector<std::string> others;
  for (const SpecDifference& difference : differences(checkpoint_state, spec)) {
    others.push_back(
        fmt::format("{}: {} there, {} here", difference.name, difference.there, difference.here));
  }
  return others;
}

TrainingState state_from_json(const json& object, const models::hstu::ModelSpec& spec,
                              int64_t seed) {
  check_same_model(object, spec);
  try {
    SEQFUSE_CHECK_AS(DataError, object.at("uvqk_layout") == kUvqkLayout,
                     "the checkpoint's weights are laid out as {}, this version reads '{}'",
                     object.at("uvqk_layout").dump(), kUvqkLayout);
    SEQFUSE_CHECK_AS(
        DataError, object.at("seed") == seed,
        "the checkpoint was trained with TrainerArgs.seed = {}, not {}: resume with the "
        "same seed",
        object.at("seed").dump(), seed);
    TrainingState state;
    visit(state, [&](const char* name, auto& value) { object.at(name).get_to(value); });
    if (object.at("spec").at(config::NetworkArgs::kName).at("dtype_str") !=
        config::name_of(config::ComputeType::float16)) {
      // Without loss scaling, versions before format 2 saved 1.
      state.loss_scale = TrainingState().loss_scale;
      state.loss_scale_steps = 0;
    }
    for (const json& metric : object.at("best_metrics")) {
      const json& value = metric.at(1);  // null: undefined
      state.best_metrics.emplace_back(
          metric.at(0).get<std::string>(),
          value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>());
    }
    state.watched = object.value("watched", "");
    return state;
  } catch (const json::exception& error) {
    throw_error<DataError>("the checkpoint's state.json: {}", error.what());
  }
}

}  // namespace seqfuse::training
