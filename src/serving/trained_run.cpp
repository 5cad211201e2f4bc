#include "serving/trained_run.h"

#include <optional>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "data/dataset/saved_vocabulary.h"
#include "data/synthesize/generated_dataset.h"
#include "training/checkpoint/checkpoint.h"
#include "training/checkpoint/model_spec_json.h"
#include "training/checkpoint/run_directory.h"
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

// Opens the dataset named in the run. Its errors do not mention that the dataset may have moved, so
// this adds that.
std::shared_ptr<const data::Dataset> open_training_dataset(const fs::path& run,
                                                           const std::string& path,
                                                           const std::string& without_dataset) {
  if (path == data::kGeneratedDataset) {
    throw_error<DataError>(
        "{} was trained on generated users (BenchmarkDatasetArgs), which are in no dataset: train "
        "on one made by `seqfuse preprocess`",
        run.string());
  }
  std::error_code ignored;
  if (!fs::exists(path, ignored)) {
    throw_error<DataError>(
        "{} was trained on the dataset {}, which no longer exists\n"
        "  give its new path with --data DIR{}",
        run.string(), path, without_dataset);
  }
  try {
    return data::Dataset::open(path);
  } catch (const DataError& error) {
    throw_error<DataError>("{}\n  {} was trained on it: give another copy with --data DIR",
                           error.what(), run.string());
  }
}

// Checks that indices mean the same, by the hash of the vocabularies, and that everything else the
// model reads is there.
void check_fits(const data::Vocabulary& vocabulary, const models::hstu::ModelSpec& spec,
                const fs::path& run) {
  const data::Manifest& manifest = vocabulary.manifest();
  const std::string where = vocabulary.directory().string();
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

// Sets vocabulary, typical and, if it is opened, dataset.
void open_data(const fs::path& path, const training::RunInfo& info, const OpenOptions& options,
               TrainedRun& run) {
  if (options.data.empty() && !options.needs_dataset &&
      data::has_saved_vocabulary(vocabulary_path(path))) {
    data::SavedVocabulary saved = data::open_saved_vocabulary(vocabulary_path(path));
    run.vocabulary = std::move(saved.vocabulary);
    run.typical = saved.typical;
    return;
  }
  run.dataset = options.data.empty()
                    ? open_training_dataset(path, info.dataset_path, options.without_dataset)
                    : data::Dataset::open(options.data);
  run.vocabulary = run.dataset;
  run.typical = data::TypicalEvents::of(*run.dataset);
}

}  // namespace

fs::path vocabulary_path(const fs::path& run) {
  return run / "vocabulary";
}

TrainedRun open_trained_run(const fs::path& path, const OpenOptions& options) {
  const training::RunDirectory directory = training::RunDirectory::open(path);
  TrainedRun run{.path = path};
  const training::Checkpoint checkpoint =
      training::load_checkpoint(checkpoint_path(path, options.checkpoint));
  run.step = checkpoint.step;
  const models::hstu::ModelSpec spec =
      training::spec_from_json(checkpoint.state.value("spec", nlohmann::json::object()));
  open_data(path, directory.info(), options, run);
  check_fits(*run.vocabulary, spec, path);
  const auto model = models::hstu::make_task_model(spec, std::nullopt);
  training::load_weights(*model, model->tables(), checkpoint);
  for (const auto* table : model->tables()) {
    const embeddings::TableContents& contents = checkpoint.tables.at(table->name());
    if (!contents.state.contains(embeddings::kSharedRow)) continue;
    log::info("run", "table {}: {} of {} ids have no row, and use the shared one", table->name(),
              table->num_rows() - contents.size(), table->num_rows());
  }
  run.predictor = std::make_shared<const Predictor>(model, options.device);
  return run;
}

}  // namespace seqfuse::serving
