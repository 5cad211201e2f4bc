#include "serving/trained_run.h"

#include "base/error.h"
#include "config/load.h"
#include "training/checkpoint/checkpoint.h"
#include "training/checkpoint/model_spec_json.h"
#include "training/checkpoint/run_directory.h"
#include "training/loop/split_options.h"
#include "training/checkpoint/weights.h"

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
  run.dataset = data::Dataset::open(data.empty() ? directory.info().dataset_path : data);
  if (run.dataset->manifest().hash != run.spec.dataset_hash) {
    throw_error<DataError>(
        "{} has another vocabulary than the dataset that {} was trained on: its ids mean other "
        "items\n"
        "  give the training dataset with --data, or train on this one",
        run.dataset->directory().string(), path.string());
  }
  if (run.spec.task == models::Task::retrieval) {
    run.retrieval = models::make_retrieval_model(run.spec, directory.info().seed);
    training::load_weights(*run.retrieval, checkpoint);
    run.retrieval->eval();
  } else {
    run.ranking = models::make_ranking_model(run.spec, directory.info().seed);
    training::load_weights(*run.ranking, checkpoint);
    run.ranking->eval();
  }
  return run;
}

}  // namespace seqfuse::serving
