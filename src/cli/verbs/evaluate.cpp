// seqfuse evaluate RUN: metrics of a run's model, next to simple baselines.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "cli/choice_option.h"
#include "cli/command_line.h"
#include "cli/verbs.h"
#include "config/load.h"
#include "data/batch/split.h"
#include "serving/trained_run.h"
#include "training/checkpoint/run_directory.h"
#include "training/device/device.h"
#include "training/evaluation/baselines.h"
#include "training/evaluation/evaluation.h"
#include "training/evaluation/metrics_table.h"
#include "training/evaluation/target_counts.h"
#include "training/loop/split_options.h"

namespace seqfuse::cli {
namespace {

using training::Metrics;
using MetricsRows = std::vector<std::pair<std::string, Metrics>>;

MetricsRows evaluate(const serving::TrainedRun& run, const data::Split& split,
                     const std::vector<data::Sample>& samples, int64_t batch_size) {
  MetricsRows rows = {
      {"model", run.predictor->evaluate(*run.dataset, samples,
                                        {.batch_size = batch_size, .show_progress = true})}};
  const MetricsRows baselines =
      training::baselines(*run.dataset, split, samples, run.predictor->spec());
  rows.insert(rows.end(), baselines.begin(), baselines.end());
  return rows;
}

nlohmann::json metrics_json(const Metrics& metrics) {
  nlohmann::json object = nlohmann::json::object();
  for (const auto& [name, value] : metrics) object[name] = value;
  return object;
}

}  // namespace

int cmd_evaluate(int argc, char** argv) {
  std::string path, checkpoint, data, device = "auto";
  config::EvaluateOn evaluate_on = config::EvaluateOn::test;
  bool json = false;
  size_t max_users = 0;
  CLI::App app("Evaluates a run's model on held-out events, next to simple baselines.", "evaluate");
  app.add_option("RUN", path, "run directory of `seqfuse train`")->required()->check(kPath);
  app.add_option("--checkpoint", checkpoint, "step_N (default: the newest)")->check(kPath);
  add_choice(app, "--split", evaluate_on, "test or validation")->default_str("test");
  app.add_option("--data", data, "dataset directory (default: the one it was trained on)")
      ->check(kPath);
  app.add_option("--max-users", max_users, "evaluate only the first N windows")
      ->check(whole_number(1));
  add_device_option(app, device);
  app.add_flag("--json", json, "print JSON instead of a table");
  if (const auto done = parse_arguments(app, argc, argv)) return *done;

  const serving::TrainedRun run = serving::open_trained_run(
      path, {.checkpoint = checkpoint,
             .data = data,
             .device = training::choose_device(device, /*required_sm=*/"")});
  const auto config = config::load_config<config::EvaluateConfig>(
                          training::RunDirectory::open(path).operative_config().string(), {})
                          .config;
  const models::hstu::ModelSpec& spec = run.predictor->spec();
  const data::Split split =
      data::make_split(*run.dataset, training::split_options(config.dataset, spec.task));
  std::vector<data::Sample> samples =
      evaluate_on == config::EvaluateOn::test ? split.test : split.validation;
  if (max_users > 0 && samples.size() > max_users) samples.resize(max_users);
  log::info("evaluate", "{}, step {}, {} {} windows; {}", run.path.string(), run.step,
            samples.size(), name_of(evaluate_on), split.rule);
  const MetricsRows rows = evaluate(run, split, samples, config.trainer.eval_batch_size);
  std::optional<training::TargetCounts> targets;
  if (run.predictor->is_retrieval()) {
    targets = training::count_targets(*run.dataset, samples);
    log::info("evaluate", "{}", targets->text(spec.retrieval.filter_seen));
  }
  if (!json) {
    fmt::print("{}", training::format_metrics_table(rows));
    return 0;
  }
  nlohmann::json result = {{"run", run.path.string()},
                           {"step", run.step},
                           {"split", std::string(name_of(evaluate_on))},
                           {"windows", samples.size()}};
  if (targets) result["seen_targets"] = targets->seen;
  for (const auto& [name, metrics] : rows) {
    (name == "model" ? result["model"] : result["baselines"][name]) = metrics_json(metrics);
  }
  // Directory names may contain bytes that are not UTF-8.
  fmt::print("{}\n", result.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
  return 0;
}

}  // namespace seqfuse::cli

extern "C" int seqfuse_cmd_evaluate(int argc, char** argv) {
  return seqfuse::cli::cmd_evaluate(argc, argv);
}
