// seqfuse recommend RUN: the best items for a user or for a history; of a ranking run, given
// candidates in the order of their predictions.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "cli/command_line.h"
#include "cli/verbs.h"
#include "serving/retrieval.h"
#include "serving/trained_run.h"

namespace seqfuse::cli {
namespace {

struct Request {
  std::string user;
  std::vector<std::string> history, candidates;
  int64_t top_k = 10;
  bool include_seen = false;
};

struct Row {
  int64_t item;
  std::vector<std::pair<std::string, double>> scores;  // the first one orders the rows
};

int64_t find_item(const data::Dataset& dataset, std::string id) {
  id.erase(0, id.find_first_not_of(' '));
  id.erase(id.find_last_not_of(' ') + 1);
  const auto item = dataset.find_item(id);
  if (!item) {
    throw_error<UsageError>(
        "item '{}' is not among the {} items of {}: give ids of the source, such as '{}'", id,
        dataset.num_items(), dataset.directory().string(), dataset.item_id(1));
  }
  return *item;
}

std::vector<int64_t> find_items(const data::Dataset& dataset, const std::vector<std::string>& ids) {
  std::vector<int64_t> items;
  for (const std::string& id : ids) items.push_back(find_item(dataset, id));
  return items;
}

// The window of the request, and all items that the user has had.
std::pair<data::Batch, std::vector<int64_t>> window(const serving::TrainedRun& run,
                                                    const Request& request) {
  const data::Dataset& dataset = *run.dataset;
  if (request.user.empty()) {
    std::vector<int64_t> items = find_items(dataset, request.history);
    data::Batch batch = serving::history_batch(dataset, items, run.spec.max_history);
    return {std::move(batch), std::move(items)};
  }
  const auto user = dataset.find_user(request.user);
  if (!user) {
    throw_error<UsageError>(
        "user '{}' is not among the {} users of {}: give an id of the source, such as '{}', or "
        "--history",
        request.user, dataset.num_users(), dataset.directory().string(), dataset.user_id(0));
  }
  const auto items = dataset.user(*user).items;
  return {serving::user_batch(dataset, *user, run.spec.max_history), {items.begin(), items.end()}};
}

std::vector<Row> retrieve(const serving::TrainedRun& run, const Request& request) {
  if (!request.candidates.empty()) {
    throw_error<UsageError>(
        "{} is a retrieval run, which chooses from all items: leave out --candidates",
        run.path.string());
  }
  const torch::NoGradGuard no_grad;
  auto [batch, seen] = window(run, request);
  if (request.include_seen) seen.clear();
  const auto best = serving::top_items(run.retrieval->query(batch), run.retrieval->item_rows(),
                                       request.top_k, {std::move(seen)});
  std::vector<Row> rows;
  for (const serving::ScoredItem& scored : best.front()) {
    rows.push_back({scored.item, {{"score", scored.score}}});
  }
  return rows;
}

std::vector<Row> rank(const serving::TrainedRun& run, const Request& request) {
  if (request.candidates.empty()) {
    throw_error<UsageError>(
        "{} is a ranking run, which orders given items: name them with --candidates \"id,id,...\", "
        "or train a retrieval run to choose from all items",
        run.path.string());
  }
  const torch::NoGradGuard no_grad;
  data::Batch batch = window(run, request).first;
  const std::vector<int64_t> candidates = find_items(*run.dataset, request.candidates);
  serving::append_candidates(batch, candidates);
  const torch::Tensor logits = run.ranking->forward(batch, {}).logits.to(torch::kDouble);
  const bool classes = logits.size(1) != run.spec.ranking.num_tasks;
  const torch::Tensor scores =
      (classes ? logits.softmax(1).mv(torch::arange(logits.size(1), torch::kDouble)).unsqueeze(1)
               : logits.sigmoid())
          .contiguous();
  const std::vector<std::string>& names = run.dataset->manifest().action_names;
  std::vector<Row> rows;
  for (size_t i = 0; i < candidates.size(); ++i) {
    Row row{candidates[i], {}};
    for (int64_t t = 0; t < scores.size(1); ++t) {
      const bool named = scores.size(1) > 1 && t < std::ssize(names);
      row.scores.emplace_back(classes ? "expected class"
                              : named ? names[t]
                                      : "probability",
                              scores[static_cast<int64_t>(i)][t].item<double>());
    }
    rows.push_back(std::move(row));
  }
  std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) {
    return a.scores.front().second > b.scores.front().second;
  });
  if (std::ssize(rows) > request.top_k) rows.resize(request.top_k);
  return rows;
}

void print_table(const data::Dataset& dataset, const std::vector<Row>& rows) {
  if (rows.empty()) {
    fmt::print("nothing to recommend: every item has been seen (--include-seen)\n");
    return;
  }
  size_t id_width = 4;
  for (const Row& row : rows) id_width = std::max(id_width, dataset.item_id(row.item).size());
  fmt::print("rank  {:>{}}", "item", id_width);
  for (const auto& [name, value] : rows.front().scores) {
    fmt::print("  {:>{}}", name, std::max<size_t>(name.size(), 6));
  }
  fmt::print("  title\n");
  for (size_t i = 0; i < rows.size(); ++i) {
    fmt::print("{:>4}  {:>{}}", i + 1, dataset.item_id(rows[i].item), id_width);
    for (const auto& [name, value] : rows[i].scores) {
      fmt::print("  {:>{}.4f}", value, std::max<size_t>(name.size(), 6));
    }
    fmt::print("  {}\n", dataset.item_title(rows[i].item));
  }
}

void print_json(const serving::TrainedRun& run, const std::vector<Row>& rows) {
  nlohmann::json items = nlohmann::json::array();
  for (const Row& row : rows) {
    nlohmann::json entry = {{"item", run.dataset->item_id(row.item)}};
    const std::string title = run.dataset->item_title(row.item);
    if (!title.empty()) entry["title"] = title;
    for (const auto& [name, value] : row.scores) entry[name] = value;
    items.push_back(std::move(entry));
  }
  const nlohmann::json result = {
      {"run", run.path.string()}, {"step", run.step}, {"items", std::move(items)}};
  // Titles may hold bytes that are not UTF-8.
  fmt::print("{}\n", result.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
}

}  // namespace

int cmd_recommend(int argc, char** argv) {
  std::string path, checkpoint, data;
  Request request;
  bool json = false;
  CLI::App app("The best items for a user or a history; of a ranking run: candidates, best first.",
               "recommend");
  app.add_option("RUN", path, "run directory of `seqfuse train`")->required();
  auto* source = app.add_option_group("source")->require_option(1);
  source->add_option("--user", request.user, "user id, as in the source");
  source->add_option("--history", request.history, "item ids \"id,id,...\", oldest first")
      ->delimiter(',');
  app.add_option("--candidates", request.candidates, "ranking runs: item ids to order")
      ->delimiter(',');
  app.add_option("--top-k", request.top_k, "items to show")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_flag("--include-seen", request.include_seen, "also items of the history");
  app.add_option("--checkpoint", checkpoint, "step_N (default: the newest)");
  app.add_option("--data", data, "dataset directory (default: the one it was trained on)");
  app.add_flag("--json", json, "print JSON instead of a table");
  if (const auto done = parse_arguments(app, argc, argv)) return *done;

  const serving::TrainedRun run = serving::open_trained_run(path, checkpoint, data);
  const std::vector<Row> rows = run.retrieval ? retrieve(run, request) : rank(run, request);
  if (json) {
    print_json(run, rows);
  } else {
    print_table(*run.dataset, rows);
  }
  return 0;
}

}  // namespace seqfuse::cli

extern "C" int seqfuse_cmd_recommend(int argc, char** argv) {
  return seqfuse::cli::cmd_recommend(argc, argv);
}
