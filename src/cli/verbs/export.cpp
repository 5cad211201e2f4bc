// seqfuse export RUN: vectors of items or users with their raw ids, for search indexes.
#include <fmt/format.h>

#include <string>

#include "base/log.h"
#include "base/progress.h"
#include "cli/command_line.h"
#include "cli/verbs.h"
#include "data/export/vector_file.h"
#include "serving/trained_run.h"
#include "serving/vectors.h"
#include "training/device/device.h"

namespace seqfuse::cli {

int cmd_export(int argc, char** argv) {
  std::string path, output, checkpoint, data, device = "auto";
  bool items = false, users = false;
  CLI::App app(
      "Vectors of a retrieval run with raw ids: a user's dot product with an item is the score.",
      "export");
  app.add_option("RUN", path, "run directory of `seqfuse train retrieval`")
      ->required()
      ->check(kPath);
  auto* what = app.add_option_group("vectors")->require_option(1);
  what->add_flag("--items", items, "of all items");
  what->add_flag("--users", users, "of all users of the data set, after all their events");
  app.add_option("--output", output, "FILE.parquet, or FILE.npy with ids in FILE.npy.json")
      ->required()
      ->check(kPath);
  app.add_option("--checkpoint", checkpoint, "step_N (default: the newest)")->check(kPath);
  app.add_option("--data", data, "dataset directory (default: the one it was trained on)")
      ->check(kPath);
  add_device_option(app, device);
  if (const auto done = parse_arguments(app, argc, argv)) return *done;

  data::vector_format(output);  // refused before the model is loaded
  const serving::TrainedRun run = serving::open_trained_run(
      path, {.checkpoint = checkpoint,
             .data = data,
             .device = training::choose_device(device, /*required_sm=*/""),
             .needs_dataset = users,
             .without_dataset = ", for the events of users; --items does without"});
  const serving::ExportSummary summary =
      serving::export_vectors(run, users ? serving::VectorsOf::users : serving::VectorsOf::items,
                              output, stderr_is_terminal());
  if (summary.without_events > 0) {
    log::warning("export", "{} users have no events and are left out", summary.without_events);
  }
  fmt::print("{}: {} {}, {} float32 each, L2-normalised; {}, step {}\n", output, summary.count,
             users ? "users" : "items", summary.width, path, run.step);
  return 0;
}

}  // namespace seqfuse::cli

extern "C" int seqfuse_cmd_export(int argc, char** argv) {
  return seqfuse::cli::cmd_export(argc, argv);
}
