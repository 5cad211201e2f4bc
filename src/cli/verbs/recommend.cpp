// seqfuse recommend RUN: the best items for a user, for a history or for many users. A ranking run
// orders given candidates.
#include <fmt/format.h>

#include <iostream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/log.h"
#include "cli/command_line.h"
#include "cli/ranked_items.h"
#include "cli/recommend_batch.h"
#include "cli/verbs.h"
#include "data/read/time_format.h"
#include "serving/recommendations.h"
#include "serving/request.h"
#include "serving/request_window.h"
#include "serving/trained_run.h"
#include "training/device/device.h"

namespace seqfuse::cli {
namespace {

using Row = serving::RankedItem;

// The flags of a request, as typed.
struct RecommendFlags {
  std::string user, history, actions, timestamps, request_time, time_format, candidates;
  std::vector<std::string> context;
  BatchFlags batch;

  void add_to(CLI::App& app) {
    auto* source = app.add_option_group("source")->require_option(1);
    source->add_option("--user", user, "user id, as in the source");
    source->add_option("--history", history,
                       "item ids \"id,id,...\", oldest first; -: JSON from stdin");
    source->add_option("--users", batch.users,
                       "many users, into --output: all, FILE or - (docs/recommend.md)");
    app.add_option("--timestamps", timestamps, "\"t,t,...\": when each event of the history was");
    app.add_option("--actions", actions, "\"a,a,...\": what each event was, as in the source");
    app.add_option("--context", context, "feature=value of who has the history; repeatable")
        ->allow_extra_args(false);
    app.add_option("--request-time", request_time, "time of the request");
    app.add_option("--time-format", time_format, "of times, such as '%d.%m.%Y %H:%M'");
    app.add_option("--candidates", candidates, "ranking runs: item ids to order");
    batch.add_to(app);
  }

  serving::Request request(const CLI::App& app) const {
    const auto given = [&](const char* flag) { return app.count(flag) > 0; };
    serving::Request request;
    if (given("--user")) request.user = user;
    if (given("--history") && history != "-") request.items = serving::split_list(history);
    if (given("--actions")) request.actions = serving::split_list(actions);
    if (given("--timestamps")) request.timestamps = serving::split_list(timestamps);
    if (given("--request-time")) request.request_time = request_time;
    if (given("--time-format")) {
      request.time_format = std::make_shared<const data::TimeFormat>(time_format);
    }
    if (given("--candidates")) request.candidates = serving::split_list(candidates);
    for (const std::string& entry : context) {
      const size_t equals = entry.find('=');
      if (equals == std::string::npos) {
        throw_error<UsageError>("--context is '{}': expected feature=value, such as country=de",
                                entry);
      }
      request.context.emplace_back(entry.substr(0, equals), entry.substr(equals + 1));
    }
    if (history != "-") return request;
    const std::string json(std::istreambuf_iterator<char>(std::cin), {});
    return serving::merge(request, serving::request_from_json(json));
  }
};

std::vector<Row> recommend(const serving::TrainedRun& run, const serving::RequestWindow& window,
                           int64_t top_k, bool include_seen) {
  if (run.predictor->is_retrieval()) {
    return serving::retrieve(*run.predictor, window, top_k, include_seen);
  }
  return serving::rank(*run.predictor, window, run.vocabulary->manifest().action_names, top_k);
}

void print_table(const data::Vocabulary& vocabulary, const std::vector<Row>& rows) {
  if (rows.empty()) {
    fmt::print("nothing to recommend: every item has been seen (--include-seen)\n");
    return;
  }
  std::vector<std::string> scores;
  for (const auto& [name, value] : rows.front().scores) scores.push_back(name);
  print_ranked_items(vocabulary, rows, scores);
}

void print_json(const serving::TrainedRun& run, const std::vector<Row>& rows) {
  const nlohmann::json result = {{"run", run.path.string()},
                                 {"step", run.step},
                                 {"items", ranked_items_json(*run.vocabulary, rows)}};
  // Titles may contain bytes that are not UTF-8.
  fmt::print("{}\n", result.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
}

}  // namespace

int cmd_recommend(int argc, char** argv) {
  std::string path, checkpoint, data;
  std::string device = "cpu";  // one request is answered before a GPU is ready
  RecommendFlags flags;
  int64_t top_k = 10;
  bool include_seen = false, skip_unknown = false, json = false;
  CLI::App app("The best items for users or a history; of a ranking run: candidates, best first.",
               "recommend");
  app.add_option("RUN", path, "run directory of `seqfuse train`")->required()->check(kPath);
  flags.add_to(app);
  app.add_flag("--skip-unknown", skip_unknown, "skip items that the dataset does not have");
  app.add_option("--top-k", top_k, "items to show")->check(whole_number(1))->capture_default_str();
  app.add_flag("--include-seen", include_seen, "also recommend items of the history");
  app.add_option("--checkpoint", checkpoint, "step_N (default: the newest)")->check(kPath);
  app.add_option("--data", data, "dataset directory (default: the one it was trained on)")
      ->check(kPath);
  add_device_option(app, device);
  app.add_flag("--json", json, "print JSON instead of a table");
  if (const auto done = parse_arguments(app, argc, argv)) return *done;

  if (app.count("--users") > 0) {
    for (const char* flag : {"--actions", "--timestamps", "--context", "--json"}) {
      if (app.count(flag) == 0) continue;
      throw_error<UsageError>(
          "{} is for a single request: with --users the file has a column for it, or the format of "
          "--output says so",
          flag);
    }
    return recommend_batch(flags.batch, {.run = path,
                                         .checkpoint = checkpoint,
                                         .data = data,
                                         .device = app.count("--device") > 0 ? device : "auto",
                                         .candidates = flags.candidates,
                                         .request_time = flags.request_time,
                                         .time_format = flags.time_format,
                                         .top_k = top_k,
                                         .include_seen = include_seen,
                                         .skip_unknown = skip_unknown});
  }
  BatchFlags::check_not_given(app);
  const serving::Request request = flags.request(app);
  const serving::TrainedRun run = serving::open_trained_run(
      path, {.checkpoint = checkpoint,
             .data = data,
             .device = training::choose_device(device, /*required_sm=*/""),
             .needs_dataset = request.user.has_value(),
             .without_dataset = ", for users' events; --history works without it"});
  const serving::RequestWindow window =
      serving::request_window(run.lookup(), run.predictor->spec(), request, skip_unknown);
  for (const std::string& warning : window.warnings) log::warning("recommend", "{}", warning);
  const std::vector<Row> rows = recommend(run, window, top_k, include_seen);
  if (json) {
    print_json(run, rows);
  } else {
    print_table(*run.vocabulary, rows);
  }
  return 0;
}

}  // namespace seqfuse::cli

extern "C" int seqfuse_cmd_recommend(int argc, char** argv) {
  return seqfuse::cli::cmd_recommend(argc, argv);
}
