#include "cli/resume.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/log.h"
#include "training/loop/resumed_config.h"

namespace seqfuse::cli {
namespace fs = std::filesystem;

Resumed check_resumed(const fs::path& path, config::Task task, const std::string& data,
                      const config::LoadedConfig& loaded) {
  const training::RunDirectory run = training::RunDirectory::open(path);
  if (run.info().task != task) {
    throw_error<UsageError>("{} is a {} run: resume it with seqfuse train {} --resume {}",
                            path.string(), name_of(run.info().task), name_of(run.info().task),
                            path.string());
  }
  const config::LoadedConfig before = config::load_config(run.operative_config().string(), {});
  const std::string& configured = loaded.config.dataset.dataset_path;
  const bool moved = configured != before.config.dataset.dataset_path;
  return {training::changes_on_resume(path.string(), before.operative, loaded.operative, task),
          !data.empty() ? data
          : moved       ? configured
                        : run.info().dataset_path};
}

bool has_new_data(const fs::path& path, const data::Dataset& dataset) {
  const training::RunInfo info = training::RunDirectory::open(path).info();
  const data::Manifest& manifest = dataset.manifest();
  const bool same_vocabulary = info.dataset_hash == manifest.hash;
  if (info.dataset_events == 0) return !same_vocabulary;  // a run of an older version
  if (manifest.num_events < info.dataset_events || manifest.num_users < info.dataset_users) {
    throw_error<DataError>(
        "{} holds {} events of {} users, but {} was trained on {} of {}: a run is resumed on the "
        "dataset that it was trained on, or on that and new events\n"
        "  give such a one with --data, or start a new run with TrainerArgs.ckpt_load_dir",
        dataset.directory().string(), manifest.num_events, manifest.num_users, path.string(),
        info.dataset_events, info.dataset_users);
  }
  return !same_vocabulary || manifest.num_events != info.dataset_events ||
         manifest.num_users != info.dataset_users;
}

void check_same_users(const fs::path& path, const Resumed& resumed) {
  for (const report::Difference& change : resumed.changes) {
    if (change.name != "TrainerArgs.train_batch_size") continue;
    throw_error<UsageError>(
        "{} was trained on generated users, whose number is a multiple of "
        "TrainerArgs.train_batch_size: leave that at {}",
        path.string(), change.values[0]);
  }
}

void record_resumed(const Resumed& resumed, int64_t step, int64_t epoch,
                    const std::string& operative_gin, const training::RunInfo& now,
                    training::RunDirectory& run) {
  for (const report::Difference& change : resumed.changes) {
    log::info("train", "{} is {} after step {}; it was {}", change.name,
              training::shown_value(change.values[1]), step,
              training::shown_value(change.values[0]));
  }
  run.record_changes(step, epoch, resumed.changes, operative_gin);
  run.record_dataset(now);
}

}  // namespace seqfuse::cli
