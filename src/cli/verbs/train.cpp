// seqfuse train ranking | train retrieval: from a dataset directory to an evaluated model.
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/parallel.h"
#include "base/progress.h"
#include "cli/build_info.h"
#include "cli/choice_option.h"
#include "cli/command_line.h"
#include "cli/resume.h"
#include "cli/train_start.h"
#include "cli/verbs.h"
#include "config/load.h"
#include "config/without_effect.h"
#include "data/batch/split.h"
#include "data/dataset/dataset.h"
#include "data/dataset/saved_vocabulary.h"
#include "data/synthesize/generated_dataset.h"
#include "distributed/launch.h"
#include "distributed/process_group.h"
#include "models/common/model.h"
#include "models/hstu/table_placement.h"
#include "models/hstu/task_model.h"
#include "serving/trained_run.h"
#include "training/checkpoint/run_directory.h"
#include "training/device/device.h"
#include "training/device/out_of_memory.h"
#include "training/evaluation/baselines.h"
#include "training/evaluation/evaluation.h"
#include "training/evaluation/metrics_table.h"
#include "training/loop/label_check.h"
#include "training/loop/memory_advice.h"
#include "training/loop/split_options.h"
#include "training/loop/trainer.h"

namespace seqfuse::cli {
namespace {

namespace fs = std::filesystem;

struct Arguments {
  config::Task task = config::Task::retrieval;
  std::string config_file, data, output, device = "auto", require_sm, resume_run;
  std::vector<std::string> overrides;
  int threads = 0;
  bool resume = false, force = false, quiet = false, tensorboard = false;
};

std::optional<int> parse(int argc, char** argv, Arguments& arguments) {
  CLI::App app("Trains an HSTU model. Ctrl-C saves first (exit code 130; SIGTERM: 143).", "train");
  add_choice(app, "task", arguments.task, "ranking or retrieval")->required();
  app.add_option("--gin-config-file", arguments.config_file, "configuration; configs/ has examples")
      ->check(kPath);
  app.add_option("--gin", arguments.overrides, "Class.parameter=value, over the file; repeatable")
      ->allow_extra_args(false);
  app.add_option("--data", arguments.data, "dataset directory made by `seqfuse preprocess`")
      ->check(kPath);
  app.add_option("--output", arguments.output, "run directory to create")->check(kPath);
  auto* resume = app.add_option("--resume", arguments.resume_run,
                                "continue the run RUN, or the one in --output")
                     ->expected(0, 1)
                     ->type_name("[RUN]");
  app.add_flag("--force", arguments.force, "replace an earlier run in --output");
  add_device_option(app, arguments.device);
  app.add_option("--require-sm", arguments.require_sm,
                 "accept only GPUs of this compute capability, such as 8.0");
  app.add_option("--threads", arguments.threads, "CPU threads; default: all")
      ->check(CLI::PositiveNumber);
  app.add_flag("--tensorboard", arguments.tensorboard,
               "also write RUN/tensorboard, which `tensorboard --logdir` shows");
  app.add_flag("--quiet", arguments.quiet, "only warnings and the final table");
  const std::optional<int> done = parse_arguments(app, argc, argv);
  arguments.resume = resume->count() > 0;
  if (!arguments.resume_run.empty()) {  // not ->check(): the option is valid without a path
    const std::string problem = kPath(arguments.resume_run);
    if (!problem.empty()) throw_error<UsageError>("--resume: {}", problem);
  }
  return done;
}

fs::path run_path(const Arguments& arguments, const config::TrainerArgs& trainer) {
  if (!arguments.resume_run.empty()) return arguments.resume_run;
  return arguments.output.empty() ? trainer.ckpt_save_dir : arguments.output;
}

config::LoadedConfig load(const Arguments& arguments) {
  if (!arguments.config_file.empty()) {
    return config::load_config(arguments.config_file, arguments.overrides);
  }
  const std::string& run = arguments.resume_run.empty() ? arguments.output : arguments.resume_run;
  if (arguments.resume && !run.empty()) {
    return config::load_config((fs::path(run) / "operative_config.gin").string(),
                               arguments.overrides);
  }
  throw_error<UsageError>(
      "train {}: which configuration? Give --gin-config-file (configs/ has examples), or --resume "
      "RUN",
      name_of(arguments.task));
}

std::shared_ptr<const data::Dataset> open_dataset(const std::string& directory,
                                                  const config::DatasetArgs& args) {
  if (directory.empty()) {
    throw_error<UsageError>(
        "which dataset? Give --data DIR or DatasetArgs.dataset_path: a directory made by `seqfuse "
        "preprocess`");
  }
  auto dataset = data::Dataset::open(directory);
  const std::string& name = dataset->manifest().dataset_name;
  if (name != args.dataset_name) {
    throw_error<UsageError>(
        "DatasetArgs.dataset_name is '{}', but {} holds '{}': give the other --data, or --gin "
        "\"DatasetArgs.dataset_name='{}'\"",
        args.dataset_name, directory, name, name);
  }
  return dataset;
}

void tell_what_has_no_effect(const config::Config& config, config::Task task, at::Device device) {
  if (const std::string warning = config::warn_without_effect(config); !warning.empty()) {
    log::warning("train", "{}", warning);
  }
  const config::RunKind run = {.task = task, .is_on_gpu = device.is_cuda()};
  for (const std::string& note : config::notes_of_no_effect(config, run)) {
    log::info("train", "{}", note);
  }
}

// Returns the number of parameters in tables, and in all other tensors.
std::pair<int64_t, int64_t> count_parameters(const models::Model& model) {
  int64_t in_tables = 0, others = 0;
  for (const auto* table : model.tables()) in_tables += table->num_rows() * table->dim();
  for (const auto& parameter : model.named_parameters()) {
    if (!parameter.key().starts_with("tables.")) others += parameter.value().numel();
  }
  return {in_tables, others};
}

void tell_sharded_tables(const models::Model& model, int processes) {
  for (const auto* table : model.tables()) {
    if (!table->is_sharded() || !table->weight().defined()) continue;
    log::info("train", "table {}: {} rows over {} processes, {} here", table->name(),
              table->num_rows(), processes, table->rows_here());
  }
}

void print_training_result(const training::TrainResult& result, const data::Dataset& dataset,
                           const data::Split& split, const config::Config& config,
                           const models::hstu::ModelSpec& spec, const training::RunDirectory& run) {
  using Rows = std::vector<std::pair<std::string, training::Metrics>>;
  Rows rows;
  if (!result.metrics.empty()) {
    rows.emplace_back(
        fmt::format("{}, step {}", config::name_of(spec.network.architecture), result.step),
        result.metrics);
  }
  if (result.best_step >= 0 && result.best_step != result.step) {
    rows.emplace_back(fmt::format("{}, best step {}", config::name_of(spec.network.architecture),
                                  result.best_step),
                      result.best_metrics);
  }
  if (!rows.empty()) {
    const Rows baselines = training::baselines(
        dataset, split, training::evaluation_samples(config.dataset, split), spec);
    report::write_baselines(run.path(), baselines);  // for `seqfuse report`
    rows.insert(rows.end(), baselines.begin(), baselines.end());
    fmt::print("{}\n", training::format_metrics_table(rows));
  } else {
    fmt::print("no metrics: the split leaves nothing to evaluate on\n");
  }
  const std::string path = run.path().string();
  fmt::print("run: {}\n", path);
  if (result.stopped_early) {
    fmt::print("stopped early; the best step: seqfuse evaluate {} --checkpoint step_{}\n", path,
               result.best_step);
  } else {
    fmt::print("next: seqfuse evaluate {}", path);
    if (spec.task == models::hstu::Task::retrieval)
      fmt::print(", or seqfuse recommend {} --user ID", path);
    fmt::print("\n");
  }
}

// Processes on one machine share its cores, unless --threads says otherwise.
void set_threads(int threads, const distributed::Launch& launch) {
  if (threads > 0) {
    set_num_threads(threads);
  } else if (launch.local_size > 1) {
    set_num_threads(num_threads() / launch.local_size);
  }
  at::set_num_threads(num_threads());
}

// Runs make(), which allocates the model or the optimiser's state, and explains a lack of memory.
template <class Make>
auto unless_out_of_memory(const config::Config& config, const Make& make) {
  try {
    return make();
  } catch (const std::exception& error) {
    if (!training::is_out_of_memory(error)) throw;
    throw_error("out of memory before the first step: {}{}", training::message_of(error),
                training::how_to_make_models_smaller(config));
  }
}

// Saves what serving without the dataset needs, and what finds the run's rows in a larger one.
void keep_vocabulary(const data::Dataset& dataset, const fs::path& run, bool new_data) {
  const fs::path directory = serving::vocabulary_path(run);
  if (new_data || !data::has_saved_vocabulary(directory)) {
    data::save_vocabulary(dataset, directory);
  }
}

// group: created here if there are several processes; left in place if this throws.
int train(int argc, char** argv, const distributed::Launch& launch,
          std::unique_ptr<distributed::ProcessGroup>& group) {
  Arguments arguments;
  if (const auto done = parse(argc, argv, arguments)) return *done;
  const bool first = launch.rank == 0;  // only this rank prints and writes
  arguments.quiet = arguments.quiet || !first;
  if (arguments.quiet) log::set_level(log::Level::warning);
  const at::Device device =
      training::choose_device(arguments.device, arguments.require_sm, launch.local_rank);
  set_threads(arguments.threads, launch);

  config::LoadedConfig loaded = load(arguments);
  config::Config& config = loaded.config;
  const bool generated = config.benchmark_dataset.has_value();
  if (generated) config.dataset = data::dataset_args_of(*config.benchmark_dataset);
  const config::Task task = arguments.task;
  const fs::path path = run_path(arguments, config.trainer);
  const bool resuming = arguments.resume && fs::exists(path / "run.json");
  if (arguments.resume && !resuming) {
    log::info("train", "{} holds no run: starting from the beginning", path.string());
  }
  std::string data = arguments.data.empty() ? config.dataset.dataset_path : arguments.data;
  Resumed resumed;
  if (resuming) {
    resumed = check_resumed(path, task, arguments.data, loaded);
    if (generated) check_same_users(path, resumed);
    data = resumed.data;
  }
  const auto dataset = generated
                           ? data::generate_dataset(
                                 *config.benchmark_dataset, config.trainer.train_batch_size,
                                 static_cast<uint64_t>(config.trainer.seed),
                                 task == models::hstu::Task::ranking ? config.ranking.num_tasks : 1)
                           : open_dataset(data, config.dataset);
  const bool new_data = resuming && has_new_data(path, *dataset);
  const data::Split split =
      data::make_split(*dataset, training::split_options(config.dataset, task));
  const models::hstu::ModelSpec spec =
      models::hstu::ModelSpec::make(task, config, dataset->manifest());
  const std::string alike = training::check_training_labels(*dataset, split, spec);
  if (first) {
    if (!alike.empty()) log::warning("train", "{}", alike);
    tell_what_has_no_effect(config, task, device);
  }

  training::set_arithmetic(device, config.trainer);
  group = launch.size > 1 ? std::make_unique<distributed::ProcessGroup>(
                                launch, device, config.trainer.rank_timeout_seconds)
                          : std::make_unique<distributed::ProcessGroup>();
  if (group->several()) log::info("train", "{} processes, {}", launch.size, group->backend());
  const embeddings::Placement placement =
      models::hstu::table_placement(config, spec, *group, device);
  const auto model = unless_out_of_memory(config, [&] {
    auto made = models::hstu::make_task_model(spec, static_cast<uint64_t>(config.trainer.seed),
                                              torch::kFloat, placement);
    made->to(device);
    return made;
  });
  training::Trainer trainer = unless_out_of_memory(
      config, [&] { return training::Trainer(*model, *dataset, split, config, *group); });
  if (first) {
    start_weights(trainer, resuming ? path : fs::path(), new_data, config.trainer.ckpt_load_dir,
                  *dataset, spec);
  }
  trainer.share_start();

  const training::RunInfo info = {
      .task = task,
      .dataset_path = generated ? dataset->directory().string()
                                : fs::absolute(data).lexically_normal().string(),
      .dataset_hash = spec.dataset_hash,
      .dataset_users = dataset->manifest().num_users,
      .dataset_events = dataset->manifest().num_events,
      .seed = static_cast<uint64_t>(config.trainer.seed),
      .version = kVersion};
  training::RunDirectory run =
      !first     ? training::RunDirectory::of_other_process(path, info)
      : resuming ? training::RunDirectory::open(path)
                 : training::RunDirectory::create(path, info, loaded.operative, arguments.force);
  // First the checkpoint with the new vocabulary, then that, then run.json: a run that is killed in
  // between is resumed with the same --data.
  if (new_data && trainer.step() > 0) trainer.save_start(run);
  if (first && !generated) keep_vocabulary(*dataset, path, new_data);
  if (resuming) {
    record_resumed(resumed, trainer.step(), trainer.epoch(), loaded.operative, info, run);
  }
  if (arguments.tensorboard && first) run.start_tensorboard();
  log::info("train", "configuration in force: {}", run.operative_config().string());
  log::info("train", "{}: {}", dataset->manifest().dataset_name, split.rule);
  const auto [in_tables, others] = count_parameters(*model);
  log::info("train", "model {}: {} parameters in tables, {} dense; on {}, {} threads",
            config::name_of(spec.network.architecture),
            format_count(static_cast<double>(in_tables)), format_count(static_cast<double>(others)),
            device.str(), num_threads());
  tell_sharded_tables(*model, launch.size);
  log::info(
      "train", "{} steps of {} users", trainer.total_steps(),
      config.trainer.train_batch_size * config.trainer.gradient_accumulation_steps * launch.size);

  const training::TrainResult result = trainer.run(run, !arguments.quiet);
  if (result.signal != 0) {
    if (first) {
      log::warning(
          "train",
          "stopped by {} after step {}; saved. Continue with: seqfuse train {} --resume {}",
          result.signal == SIGINT ? "Ctrl-C" : "SIGTERM", result.step, name_of(task),
          path.string());
    }
  } else if (first) {
    print_training_result(result, *dataset, split, config, spec, run);
  }
  group->leave();
  return result.signal != 0 ? 128 + result.signal : 0;
}

}  // namespace

int cmd_train(int argc, char** argv) {
  const auto launch = distributed::Launch::from_environment();
  std::unique_ptr<distributed::ProcessGroup> group;
  if (launch.size == 1) return train(argc, argv, launch, group);
  try {
    return train(argc, argv, launch, group);
  } catch (const std::exception& error) {
    // Tell the other processes why. Nothing is unwound: a collective may be in progress.
    fmt::print(stderr, "seqfuse: rank {}: {}\n", launch.rank, error.what());
    std::fflush(nullptr);
    if (group) group->fail(error.what());
    _exit(dynamic_cast<const UsageError*>(&error) != nullptr ? 2 : 1);
  }
}

}  // namespace seqfuse::cli

extern "C" int seqfuse_cmd_train(int argc, char** argv) {
  return seqfuse::cli::cmd_train(argc, argv);
}
