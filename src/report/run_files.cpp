#include "report/run_files.h"

#include <fmt/ranges.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>

#include "base/error.h"
#include "base/file.h"

namespace seqfuse::report {
namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;  // metrics keep the order in which they are reported

void write_run_info(const fs::path& run, const RunInfo& info) {
  const nlohmann::json object = {{"task", std::string(name_of(info.task))},
                                 {"dataset_path", info.dataset_path},
                                 {"dataset_hash", info.dataset_hash},
                                 {"dataset_users", info.dataset_users},
                                 {"dataset_events", info.dataset_events},
                                 {"seed", info.seed},
                                 {"version", info.version}};
  write_file_atomically(run / "run.json", object.dump(2) + "\n");
}

RunInfo read_run_info(const fs::path& run) {
  const fs::path file = run / "run.json";
  try {
    const Json object = Json::parse(read_file(file));
    const std::string task_name = object.at("task");
    const auto task = config::find_choice<config::Task>(task_name);
    if (!task) {
      throw_error<DataError>("{}: task is '{}'; expected one of {}", file.string(), task_name,
                             fmt::join(choice_names(config::Task{}), ", "));
    }
    return {.task = *task,
            .dataset_path = object.at("dataset_path"),
            .dataset_hash = object.at("dataset_hash"),
            .dataset_users = object.value("dataset_users", int64_t{0}),
            .dataset_events = object.value("dataset_events", int64_t{0}),
            .seed = object.at("seed"),
            .version = object.at("version")};
  } catch (const Json::exception& error) {
    throw_error<DataError>("{}: not a run's description: {}", file.string(), error.what());
  }
}

void write_baselines(const fs::path& run, const NamedMetrics& baselines) {
  Json object = Json::object();
  for (const auto& [name, metrics] : baselines) {
    for (const auto& [metric, value] : metrics) object[name][metric] = value;
  }
  write_file_atomically(run / "baselines.json", object.dump(2) + "\n");
}

NamedMetrics read_baselines(const fs::path& run) {
  const fs::path file = run / "baselines.json";
  std::error_code error;
  NamedMetrics baselines;
  if (!fs::exists(file, error)) return baselines;
  try {
    const Json object = Json::parse(read_file(file));
    for (const auto& [name, values] : object.get_ref<const Json::object_t&>()) {
      Metrics& metrics = baselines.emplace_back(name, Metrics{}).second;
      for (const auto& [metric, value] : values.get_ref<const Json::object_t&>()) {
        metrics.emplace_back(metric, value.is_null() ? std::numeric_limits<double>::quiet_NaN()
                                                     : value.get<double>());
      }
    }
  } catch (const Json::exception& problem) {
    throw_error<DataError>(
        "{}: expected baselines with their metrics: {}\n  remove it; `seqfuse train --resume` "
        "writes it again",
        file.string(), problem.what());
  }
  return baselines;
}

}  // namespace seqfuse::report
