#include <fmt/format.h>

#include <chrono>
#include <filesystem>

#include "base/log.h"
#include "base/parallel.h"
#include "base/progress.h"
#include "cli/command_line.h"
#include "cli/verbs.h"
#include "data/synthesize/synthesize.h"

namespace seqfuse::cli {
namespace {

void print_report(const data::SynthesisReport& report) {
  fmt::print("{} users, {} items, {} events; a user has {} to {}, median {}\n", report.users,
             report.items, report.events, report.shortest, report.longest, report.median);
  fmt::print("{:.1f} % of the events are successors of the previous event\n\n",
             100 * report.transition_rate);
  fmt::print("{:<18}{:>10}{:>12}\n", "label", "base rate", "oracle AUC");
  for (const data::LabelReport& label : report.labels) {
    fmt::print("{:<18}{:>10.4f}{:>12.4f}{}\n", label.name, label.base_rate, label.oracle_auc,
               label.learnable ? "" : "  pure noise (scored by the first label's probability)");
  }
}

void check_output(const std::filesystem::path& output, bool force) {
  namespace fs = std::filesystem;
  if (!fs::exists(output) || (fs::is_directory(output) && fs::is_empty(output))) return;
  SEQFUSE_CHECK_AS(UsageError, force, "{} exists: give another --output, or --force to replace it",
                   output.string());
  SEQFUSE_CHECK_AS(UsageError, fs::exists(output / "synthesis.json"),
                   "{} is not a folder of synthesized logs: --force replaces nothing else",
                   output.string());
}

}  // namespace

int cmd_synthesize(int argc, char** argv) {
  data::SynthesisOptions options;
  std::string output;
  int64_t users = 0, items = 0, events = 0;
  int threads = 0;
  bool force = false;
  CLI::App app{"raw logs in a known dataset's format, any size, with planted preferences",
               "synthesize"};
  app.add_option("--like", options.like, "kuairand-pure, kuairand-1k, kuairand-27k or ml-1m")
      ->required();
  app.add_option("--output", output, "folder to write")->required()->check(kPath);
  auto* users_option =
      app.add_option("--users", users, "number of users; default: that of the dataset");
  auto* items_option =
      app.add_option("--items", items, "number of items; default: in proportion to the events");
  auto* events_option = app.add_option(
      "--events", events, "exact number of events; default: from the dataset's lengths");
  app.add_option("--length-scale", options.length_scale, "factor of the dataset's history lengths");
  app.add_option("--seed", options.seed, "same seed, same bytes, for any number of threads")
      ->check(whole_number(0));
  app.add_option("--threads", threads, "default: all cores")->check(whole_number(1));
  app.add_flag("--force", force, "replace an existing folder");
  if (const auto done = parse_arguments(app, argc, argv)) return *done;

  if (*users_option) options.users = users;
  if (*items_option) options.items = items;
  if (*events_option) options.events = events;
  if (threads > 0) set_num_threads(threads);
  check_output(output, force);
  const auto start = std::chrono::steady_clock::now();
  const data::SynthesisReport report = data::synthesize(options, output);
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  print_report(report);
  log::info("synthesize", "wrote {} in {} ({} events/s)", output, format_duration(seconds),
            format_count(static_cast<double>(report.events) / seconds));
  return 0;
}

}  // namespace seqfuse::cli
