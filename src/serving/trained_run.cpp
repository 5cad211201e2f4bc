#include "serving/trained_run.h"

#include <optional>
#include <system_error>

#include "base/error.h"
#include "config/load.h"
#include "training/checkpoint/checkpoint.h"
#include "training/checkpoint/model_spec_json.h"
#include "training/checkpoint/run_directory.h"
#include "training/checkpoint/weights.h"
#include "training/loop/split_options.h"

namespace seqfuse::serving {
namespace fs = std::filesystem;
namespace {

fs::path checkpoint_path(const fs::path& run, const std::string& name) {
  if (name.empty()) {
    const auto newest = training::newest_checkpoint(run);
    if (!newest) {
      throw_error<DataError>("{} has no checkpoint yet: train longer, or continue with --resume",
                             run.string());
    }
    return *newest;
  }
  fs::path path = run / "checkpoints" / name;
  if (!fs::exists(path)) {
    const auto newest = training::newest_checkpoint(run);
    throw_error<UsageError>("{} does not exist; the newest checkpoint is {}", path.string(),
                            newest ? newest->filename().string() : "none");
  }
  return path;
}

// The data set that the run says it was trained on. A message of what is wrong with it does not yet
// tell that it may be elsewhere.
std::shared_ptr<const data::Dataset> open_training_dataset(const fs::path& run,
                                                           const config::Config& config,
                                                           const std::string& path) {
  if (config.benchmark_dataset) {
    throw_error<DataError>(
        "{} was trained on generated users (BenchmarkDatasetArgs), which no data set holds: train "
        "on one of `seqfuse preprocess`",
        run.string());
  }
  std::error_code ignored;
  if (!fs::exists(path, ignored)) {
    throw_error<DataError>(
        "{} was trained on the data set {}, which is not there any more\n"
        "  --data DIR says where it is now",
        run.string(), path);
  }
  try {
    return data::Dataset::open(path);
  } catch (const DataError& error) {
    throw_error<DataError>("{}\n  {} was trained on it: --data DIR names another copy",
                           error.what(), run.string());
  }
}

// Indices mean the same, by the hash of the vocabularies; the rest of what the model reads must be
// there too.
void check_fits(const data::Dataset& dataset, const models::hstu::ModelSpec& spec,
                const fs::path& run) {
  const data::Manifest& manifest = dataset.manifest();
  const std::string where = dataset.directory().string();
  if (manifest.hash != spec.dataset_hash) {
    throw_error<DataError>(
        "{} has another vocabulary than the dataset that {} was trained on: its ids mean other "
        "items\n"
        "  give the training dataset with --data, or train on this one",
        where, run.string());
  }
  const int64_t num_actions =
      manifest.action_kind == data::ActionKind::none ? 0 : manifest.num_actions;
  if (num_actions != spec.num_actions) {
    throw_error<DataError>(
        "{} has {} labels of actions, the dataset that {} was trained on has {}\n"
        "  give the training dataset with --data, or train on this one",
        where, num_actions, run.string(), spec.num_actions);
  }
  if (spec.reads_times() && !manifest.has_timestamps) {
    throw_error<DataError>(
        "{} has no times, and the model of {} reads them\n"
        "  give the training dataset with --data, or train on this one",
        where, run.string());
  }
}

}  // namespace

data::Split TrainedRun::split() const {
  return data::make_split(*dataset, training::split_options(config.dataset, spec.task));
}

TrainedRun open_trained_run(const fs::path& path, const std::string& checkpoint_name,
                            const std::string& data) {
  const training::RunDirectory directory = training::RunDirectory::open(path);
  TrainedRun run{.path = path};
  run.config = config::load_config(directory.operative_config().string(), {}).config;
  const training::Checkpoint checkpoint =
      training::load_checkpoint(checkpoint_path(path, checkpoint_name));
  run.step = checkpoint.step;
  run.spec = training::spec_from_json(checkpoint.state.value("spec", nlohmann::json::object()));
  run.dataset = data.empty()
                    ? open_training_dataset(path, run.config, directory.info().dataset_path)
                    : data::Dataset::open(data);
  check_fits(*run.dataset, run.spec, path);
  if (run.spec.task == models::hstu::Task::retrieval) {
    run.retrieval = models::hstu::make_retrieval_model(run.spec, std::nullopt);
    training::load_weights(*run.retrieval, checkpoint);
    run.retrieval->eval();
  } else {
    run.ranking = models::hstu::make_ranking_model(run.spec, std::nullopt);
    training::load_weights(*run.ranking, checkpoint);
    run.ranking->eval();
  }
  return run;
}

}  // namespace seqfuse::serving
