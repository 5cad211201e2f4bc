// seqfuse similar RUN --item ID: the items whose vectors are closest to that of an item.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "cli/command_line.h"
#include "cli/verbs.h"
#include "serving/trained_run.h"
#include "serving/vectors.h"
#include "training/device/device.h"

namespace seqfuse::cli {
namespace {

using Rows = std::vector<serving::RankedItem>;

void print_table(const data::Vocabulary& vocabulary, const Rows& rows) {
  size_t width = 4;
  for (const auto& row : rows) width = std::max(width, vocabulary.item_id(row.item).size());
  fmt::print("rank  {:>{}}  cosine  title\n", "item", width);
  for (size_t i = 0; i < rows.size(); ++i) {
    fmt::print("{:>4}  {:>{}}  {:>6.4f}  {}\n", i + 1, vocabulary.item_id(rows[i].item), width,
               rows[i].scores.front().second, vocabulary.item_title(rows[i].item));
  }
}

void print_json(const serving::TrainedRun& run, const std::string& id, const Rows& rows) {
  nlohmann::json items = nlohmann::json::array();
  for (const auto& row : rows) {
    nlohmann::json entry = {{"item", run.vocabulary->item_id(row.item)},
                            {"cosine", row.scores.front().second}};
    const std::string title = run.vocabulary->item_title(row.item);
    if (!title.empty()) entry["title"] = title;
    items.push_back(std::move(entry));
  }
  const nlohmann::json result = {
      {"run", run.path.string()}, {"step", run.step}, {"item", id}, {"items", std::move(items)}};
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
  const Rows rows = serving::similar_items(run, item, top_k);
  if (json) {
    print_json(run, item, rows);
  } else {
    print_table(*run.vocabulary, rows);
  }
  return 0;
}

}  // namespace seqfuse::cli

extern "C" int seqfuse_cmd_similar(int argc, char** argv) {
  return seqfuse::cli::cmd_similar(argc, argv);
}
