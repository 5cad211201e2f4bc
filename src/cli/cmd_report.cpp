// seqfuse report RUN...: curves, metrics, configuration and data of runs as one HTML page.
#include <fmt/format.h>

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

namespace seqfuse::cli {

int cmd_report(int argc, char** argv) {
  std::vector<std::string> paths;
  std::string output, data;
  CLI::App app("Curves, metrics, configuration and data of runs as one HTML page.", "report");
  app.add_option("RUN", paths, "run directories of `seqfuse train`, also while they train")
      ->required()
      ->check(kPath);
  app.add_option("-o,--output", output, "HTML file to write; an existing one is replaced")
      ->required()
      ->check(kPath);
  app.add_option("--data", data, "new directory of a moved dataset")->check(kPath);
  if (const auto done = parse_arguments(app, argc, argv)) return *done;

  const std::vector<report::RunLog> runs = report::read_runs(paths);
  const std::vector<report::RunDataset> datasets = report::run_datasets(runs, data);
  for (const report::RunDataset& dataset : datasets) {
    if (!dataset.statistics) log::warning("report", "{}", dataset.problem);
  }
  write_file_atomically(output, report::html_page(runs, datasets, kVersion));
  fmt::print("report: {}\n", output);
  return 0;
}

}  // namespace seqfuse::cli
