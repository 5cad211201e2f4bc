// seqfuse similar RUN --item ID: the items whose vectors are closest to that of an item.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/command_line.h"
#include "cli/ranked_items.h"
#include "cli/verbs.h"
#include "serving/trained_run.h"
#include "serving/vectors.h"
#include "training/device/device.h"

namespace seqfuse::cli {
namespace {

using RankedItems = std::vector<serving::RankedItem>;

void print_similar_json(const serving::TrainedRun& run, const std::string& id,
                        const RankedItems& rows) {
  const nlohmann::json result = {{"run", run.path.string()},
                                 {"step", run.step},
                                 {"item", id},
                                 {"items", ranked_items_json(*run.vocabulary, rows)}};
  // The name of a directory may have bytes that are not UTF-8.
  fmt::print("{}\n", result.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
}

}  // namespace

int cmd_similar(int argc, char** argv) {
  std::string path, item, checkpoint, data, device = "cpu";
  int64_t top_k = 10;
  bool json = false;
  CLI::App app("The items whose vectors are closest to that of an item, in a retrieval run.",
               "similar");
  app.add_option("RUN", path, "run directory of `seqfuse train retrieval`")
      ->required()
      ->check(kPath);
  app.add_option("--item", item, "item id, as in the source")->required();
  app.add_option("--top-k", top_k, "items to show")->check(whole_number(1))->capture_default_str();
  app.add_option("--checkpoint", checkpoint, "step_N (default: the newest)")->check(kPath);
  app.add_option("--data", data, "dataset directory (default: the vocabulary saved in the run)")
      ->check(kPath);
  add_device_option(app, device);
  app.add_flag("--json", json, "print JSON instead of a table");
  if (const auto done = parse_arguments(app, argc, argv)) return *done;

  const serving::TrainedRun run = serving::open_trained_run(
      path, {.checkpoint = checkpoint,
             .data = data,
             .device = training::choose_device(device, /*required_sm=*/""),
             .needs_dataset = false,
             .without_dataset = ""});
  const RankedItems rows = serving::similar_items(run, item, top_k);
  if (json) {
    print_similar_json(run, item, rows);
  } else {
    print_ranked_items(*run.vocabulary, rows, {"cosine"});
  }
  return 0;
}

}  // namespace seqfuse::cli

extern "C" int seqfuse_cmd_similar(int argc, char** argv) {
  return seqfuse::cli::cmd_similar(argc, argv);
}
