#include "training/training_state.h"

#include "base/error.h"
#include "training/model_spec_json.h"
#include "training/resumed_config.h"

namespace seqfuse::training {
using nlohmann::json;
namespace {

// The one layout there is; recorded so that a later one can be told apart.
constexpr const char* kUvqkLayout = "u|v|q|k, heads side by side in each";

// The fields that are numbers, once for both directions.
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

// "/NetworkArgs/hidden_dropout" as "NetworkArgs.hidden_dropout", without the place in a list.
std::string parameter_name(const std::string& pointer) {
  const size_t dot = pointer.find('/', 1);
  if (dot == std::string::npos) return pointer.substr(1);
  return pointer.substr(1, dot - 1) + "." +
         pointer.substr(dot + 1, pointer.find('/', dot + 1) - dot - 1);
}

}  // namespace

json state_to_json(const TrainingState& state, const models::ModelSpec& spec, int64_t seed) {
  json object = {{"spec", to_json(spec)}, {"seed", seed}, {"uvqk_layout", kUvqkLayout}};
  visit(state, [&](const char* name, const auto& value) { object[name] = value; });
  object["best_metrics"] = state.best_metrics;
  return object;
}

void check_same_model(const json& checkpoint_state, const models::ModelSpec& spec) {
  const json wanted = to_json(spec).flatten();
  const json found = checkpoint_state.value("spec", json::object()).flatten();
  for (const auto& [name, value] : wanted.items()) {
    const json other = found.value(name, json(nullptr));
    if (other == value || may_change_on_resume(parameter_name(name))) continue;
    if (name == "/dataset_hash") {
      throw_error<DataError>(
          "the checkpoint was trained on a dataset with another vocabulary ({}, this one has {}): "
          "give the dataset that it was trained on, or train anew",
          other.dump(), value.dump());
    }
    throw_error<DataError>(
        "the checkpoint is of another model: {} is {} there and {} in this configuration", name,
        other.dump(), value.dump());
  }
}

TrainingState state_from_json(const json& object, const models::ModelSpec& spec, int64_t seed) {
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
    object.at("best_metrics").get_to(state.best_metrics);
    return state;
  } catch (const json::exception& error) {
    throw_error<DataError>("the checkpoint's state.json: {}", error.what());
  }
}

}  // namespace seqfuse::training
