#include "report/run_log.h"

#include <sys/stat.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>
#include <tuple>

#include "base/error.h"
#include "base/file.h"

namespace seqfuse::report {
namespace fs = std::filesystem;
using nlohmann::json;
namespace {

std::string directory_name(const fs::path& path) {
  fs::path whole = fs::absolute(path).lexically_normal();
  if (whole.filename().empty()) whole = whole.parent_path();  // "runs/a/"
  return whole.filename().string();
}

Metrics metrics_of(const json& values) {
  Metrics metrics;
  for (const auto& [name, value] : values.get_ref<const json::object_t&>()) {
    metrics.emplace_back(
        name, value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>());
  }
  return metrics;
}

void add_line(RunLog& run, const json& line) {
  const int64_t step = line.at("step"), epoch = line.at("epoch");
  run.last_step = step;
  run.last_epoch = epoch;
  if (line.contains("evaluation")) {
    // Resuming a finished run evaluates its last step again, with the same result.
    if (!run.evaluations.empty() && run.evaluations.back().step == step) run.evaluations.pop_back();
    run.evaluations.push_back({step, epoch, metrics_of(line.at("evaluation")),
                               line.value("targets", int64_t{0}),
                               line.value("seen_targets", int64_t{0})});
    return;
  }
  if (line.contains("configuration")) {
    for (const auto& [name, change] : line.at("configuration").get_ref<const json::object_t&>()) {
      run.changes.push_back({step, name, change.at("before"), change.at("now")});
    }
    return;
  }
  for (const auto& [name, value] : line.items()) {
    if (name == "step" || name == "epoch" || !value.is_number()) continue;
    run.scalars[name].push_back({step, epoch, value});
    if (name == "seconds") run.seconds = value;
  }
}

void read_lines(RunLog& run, const fs::path& file) {
  const std::string content = read_file(file);
  int64_t number = 1;
  for (size_t begin = 0, end; begin < content.size(); begin = end + 1, ++number) {
    end = content.find('\n', begin);
    const bool cut_off = end == std::string::npos;
    if (cut_off) end = content.size();
    try {
      add_line(run, json::parse(content.begin() + static_cast<std::ptrdiff_t>(begin),
                                content.begin() + static_cast<std::ptrdiff_t>(end)));
    } catch (const json::exception& error) {
      if (cut_off) return;  // the line is being written, or the run was killed while writing
      throw_error<DataError>("{}:{}: expected a JSON object with step and epoch: {}", file.string(),
                             number, error.what());
    }
  }
}

// metrics.jsonl does not keep the order of metrics. Order them as in the configuration, where "AUC"
// also stands for "AUC is_click"; within one such name as in the baselines, if any, else by name
// with numbers in order: HR@5 before HR@10.
void order_metrics(RunLog& run, const std::vector<std::string>& configured) {
  const Metrics reported = run.baselines.empty() ? Metrics() : run.baselines[0].second;
  const auto key = [&](const std::string& name) {
    auto place = std::find(configured.begin(), configured.end(), name);
    if (place == configured.end()) {
      place = std::find(configured.begin(), configured.end(), name.substr(0, name.find(' ')));
    }
    const auto same = std::find_if(reported.begin(), reported.end(),
                                   [&](const auto& metric) { return metric.first == name; });
    const bool has_number = name.find('@') != std::string::npos;
    return std::tuple(place, same, has_number ? name.size() : 0, name);
  };
  const auto before = [&](const auto& a, const auto& b) { return key(a.first) < key(b.first); };
  for (Evaluation& evaluation : run.evaluations) {
    std::sort(evaluation.metrics.begin(), evaluation.metrics.end(), before);
  }
  if (run.evaluations.empty()) return;
  for (const auto& [name, value] : run.evaluations.back().metrics) run.metric_names.push_back(name);
}

}  // namespace

const Evaluation* RunLog::last_evaluation() const {
  return evaluations.empty() ? nullptr : &evaluations.back();
}

const Evaluation* RunLog::best_evaluation() const {
  const Evaluation* best = nullptr;
  for (const Evaluation& evaluation : evaluations) {
    if (best == nullptr || metric_names.empty() ||
        is_better(metric_names[0], value_of(evaluation.metrics, metric_names[0]),
                  value_of(best->metrics, metric_names[0]))) {
      best = &evaluation;
    }
  }
  return best;
}

RunLog read_run(const fs::path& path) {
  std::error_code ignored;
  if (!fs::exists(path / "run.json", ignored)) {
    throw_error<DataError>(
        "{} is not a run directory: {}\n"
        "  give the directory that `seqfuse train --output` made",
        path.string(),
        fs::exists(path, ignored) ? "it has no run.json" : "there is no such directory");
  }
  RunLog run;
  run.name = directory_name(path);
  run.path = path;
  run.info = read_run_info(path);
  run.baselines = read_baselines(path);
  const fs::path config_file = path / "operative_config.gin";
  run.operative = read_file(config_file);
  run.parameters = split_parameters(run.operative);
  const fs::path log_file = path / "metrics.jsonl";
  read_lines(run, log_file);
  struct stat status;
  if (stat(log_file.c_str(), &status) == 0) run.last_written = status.st_mtime;
  order_metrics(run, reported_metrics(config_file.string(), run.operative, run.info.task));
  return run;
}

std::vector<RunLog> read_runs(const std::vector<std::string>& paths) {
  std::vector<RunLog> runs;
  for (const std::string& path : paths) runs.push_back(read_run(path));
  std::map<std::string, int> uses;
  for (const RunLog& run : runs) ++uses[run.name];
  for (RunLog& run : runs) {
    if (uses[run.name] > 1) run.name = run.path.string();
  }
  return runs;
}

}  // namespace seqfuse::report
