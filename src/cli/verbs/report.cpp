// seqfuse report RUN...: curves, metrics, configuration and data of runs as one HTML page. Of databases of
// fusion searches: what was measured.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/log.h"
#include "cli/build_info.h"
#include "cli/command_line.h"
#include "cli/verbs.h"
#include "report/page.h"
#include "report/run_datasets.h"
#include "report/run_log.h"
#include "tuning/page.h"
#include "tuning/training_data.h"

namespace seqfuse::cli {
namespace {

// A run is a folder; what is measured is in files.
std::string page_of_measurements(const std::vector<std::string>& files) {
  std::vector<tuning::Measurement> all;
  std::string names;
  for (const std::string& file : files) {
    SEQFUSE_CHECK_AS(
        UsageError, !std::filesystem::is_directory(file),
        "report: {} is a folder, other arguments are files of measurements; expected one "
        "kind",
        file);
    const auto measurements = tuning::read_measurements(file);
    all.insert(all.end(), measurements.begin(), measurements.end());
    names += (names.empty() ? "" : ", ") + std::filesystem::path(file).filename().string();
  }
  return tuning::html_page(names, all, kVersion);
}

std::string page_of_runs(const std::vector<std::string>& paths, const std::string& data) {
  const std::vector<report::RunLog> runs = report::read_runs(paths);
  const std::vector<report::RunDataset> datasets = report::run_datasets(runs, data);
  for (const report::RunDataset& dataset : datasets) {
    if (!dataset.statistics) log::warning("report", "{}", dataset.problem);
  }
  return report::html_page(runs, datasets, kVersion);
}

}  // namespace

int cmd_report(int argc, char** argv) {
  std::vector<std::string> paths;
  std::string output, data;
  CLI::App app(
      "Curves, metrics, configuration and data of runs as one HTML page; of databases of\n"
      "`seqfuse tune` what was measured, predicted and found.",
      "report");
  app.add_option("RUN", paths,
                 "run directories of `seqfuse train`, also while they train;\n"
                 "or databases of `seqfuse tune` and CSV files of them")
      ->required()
      ->check(kPath);
  app.add_option("-o,--output", output, "HTML file to write; an existing one is replaced")
      ->required()
      ->check(kPath);
  app.add_option("--data", data, "new directory of a moved dataset")->check(kPath);
  if (const auto done = parse_arguments(app, argc, argv)) return *done;

  const bool of_measurements = std::any_of(paths.begin(), paths.end(), tuning::holds_measurements);
  SEQFUSE_CHECK_AS(UsageError, !of_measurements || data.empty(),
                   "report: --data is for runs; {} holds measurements", paths[0]);
  write_file_atomically(output,
                        of_measurements ? page_of_measurements(paths) : page_of_runs(paths, data));
  fmt::print("report: {}\n", output);
  return 0;
}

}  // namespace seqfuse::cli
