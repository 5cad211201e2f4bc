#include "cli/recommend_batch.h"

#include <ATen/Parallel.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/parallel.h"
#include "base/progress.h"
#include "cli/batch_job.h"
#include "cli/build_info.h"
#include "cli/command_line.h"
#include "data/read/time_format.h"
#include "distributed/launch.h"
#include "distributed/process_group.h"
#include "serving/batch/batch_progress.h"
#include "serving/batch/batch_recommender.h"
#include "serving/batch/item_list.h"
#include "serving/batch/recommendation_writer.h"
#include "serving/batch/request_blocks.h"
#include "serving/batch/request_reader.h"
#include "serving/batch/unfinished_batch.h"
#include "serving/trained_run.h"
#include "training/device/device.h"
#include "training/loop/interrupt.h"

namespace seqfuse::cli {
namespace fs = std::filesystem;
namespace {

using distributed::ProcessGroup;
using serving::BatchReport;
using serving::UserRequest;

constexpr double kProcessTimeout = 10;  // seconds without a sign of life of a process

// Thrown where a signal came.
struct Stopped {};

// The items that may be recommended; empty: all.
std::vector<int64_t> allowed_items(const BatchFlags& flags, const data::Vocabulary& vocabulary) {
  const auto read = [&](const char* flag, const std::string& file) {
    serving::ItemList list = serving::read_item_list(file, vocabulary);
    if (list.unknown > 0) {
      log::warning("recommend", "{} {}: {} ids, such as '{}', are not among the {} items", flag,
                   file, list.unknown, list.first_unknown, vocabulary.num_items());
    }
    return std::move(list.items);
  };
  std::vector<int64_t> allowed;
  if (!flags.only.empty()) {
    allowed = read("--only", flags.only);
    if (allowed.empty()) {
      throw_error<DataError>("--only {} names none of the {} items: nothing can be recommended",
                             flags.only, vocabulary.num_items());
    }
  }
  if (flags.exclude.empty()) return allowed;
  const std::vector<int64_t> others =
      serving::all_but(vocabulary, read("--exclude", flags.exclude));
  std::vector<int64_t> left;
  if (flags.only.empty()) {
    left = others;
  } else {
    std::set_intersection(allowed.begin(), allowed.end(), others.begin(), others.end(),
                          std::back_inserter(left));
  }
  if (left.empty()) {
    throw_error<DataError>("--exclude {} leaves no item to recommend", flags.exclude);
  }
  return left;
}

serving::ColdUsers cold_users(const std::string& name) {
  if (name == "skip") return serving::ColdUsers::skip;
  return name == "popularity" ? serving::ColdUsers::popularity : serving::ColdUsers::error;
}

// What the flags say about every user.
serving::Request defaults_of(const BatchArguments& arguments, const serving::TrainedRun& run,
                             const std::vector<int64_t>& allowed, bool only) {
  serving::Request defaults;
  if (!arguments.request_time.empty()) defaults.request_time = arguments.request_time;
  if (!arguments.time_format.empty()) {
    defaults.time_format = std::make_shared<const data::TimeFormat>(arguments.time_format);
  }
  if (!arguments.candidates.empty()) {
    defaults.candidates = serving::split_list(arguments.candidates);
  } else if (only && !run.predictor->is_retrieval()) {
    defaults.candidates.emplace();
    for (const int64_t item : allowed)
      defaults.candidates->push_back(run.vocabulary->item_id(item));
  }
  return defaults;
}

// A data set from elsewhere may have no manifest: its files are known by name, size and time.
std::string hash_of(const data::Dataset& dataset) {
  const fs::path manifest = dataset.directory() / "manifest.json";
  if (fs::exists(manifest)) return hash_file(manifest);
  std::vector<std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(dataset.directory())) {
    if (!entry.is_regular_file()) continue;
    files.push_back(fmt::format("{} {} {}", entry.path().string(), entry.file_size(),
                                entry.last_write_time().time_since_epoch().count()));
  }
  std::sort(files.begin(), files.end());
  return hash_text(fmt::format("{}", fmt::join(files, "\n")));
}

// All that the answers depend on beside the rows of --users, by the names of the options. The rows may
// change, because each block has a hash of its requests.
serving::BatchSettings settings_of(const BatchFlags& flags, const BatchArguments& arguments,
                                   const serving::TrainedRun& run,
                                   const serving::BatchOptions& options) {
  const auto yes_no = [](bool value) { return std::string(value ? "yes" : "no"); };
  const auto content = [](const std::string& file) {
    return file.empty() ? "" : fmt::format("{} ({})", file, hash_file(file));
  };
  const fs::path checkpoint = run.path / "checkpoints" / fmt::format("step_{}", run.step);
  const bool is_file = flags.users != "all" && flags.users != "-";
  return {
      {"seqfuse", kVersion},
      {"--users", is_file ? fs::absolute(flags.users).lexically_normal().string() : flags.users},
      {"--format", flags.format},
      {"--delimiter", flags.delimiter},
      {"--user-column", flags.user_column},
      {"--batch-size", std::to_string(flags.batch_size)},
      // state.json holds the hashes of all files of the checkpoint.
      {"RUN, --checkpoint",
       fmt::format("step_{} ({})", run.step, hash_file(checkpoint / "state.json"))},
      {"vocabulary of RUN", run.vocabulary->manifest().hash},
      {"--data", run.dataset ? hash_of(*run.dataset) : ""},
      {"--device", run.predictor->device().is_cuda() ? "cuda" : "cpu"},
      {"--top-k", std::to_string(options.top_k)},
      {"--only", content(flags.only)},
      {"--exclude", content(flags.exclude)},
      {"--candidates", arguments.candidates},
      {"--request-time", arguments.request_time},
      {"--time-format", arguments.time_format},
      {"--exclude-seen", yes_no(options.exclude_seen)},
      {"--skip-unknown", yes_no(options.skip_unknown)},
      {"--cold-users", flags.cold_users}};
}

void summarise(const BatchReport& report, const serving::RequestBlocks& blocks,
               const std::string& cold, const std::string& output, const BatchJob& batch) {
  const serving::BatchCounts& counts = report.counts;
  if (counts.cold > 0) {
    log::warning("recommend", "{} users of whom the model knows nothing, such as '{}', {}",
                 counts.cold, counts.first_cold,
                 cold == "skip" ? "are left out" : "get the most popular items, without scores");
  }
  if (counts.without_items > 0) {
    log::warning("recommend", "{} users get no item, because none was left to recommend",
                 counts.without_items);
  }
  if (counts.unknown > 0) {
    log::warning("recommend", "{} ids that the data set does not have are left out; the first: {}",
                 counts.unknown, counts.first_unknown);
  }
  if (blocks.duplicates() > 0) {
    log::warning("recommend", "{} users came again and were left out; the first: {}",
                 blocks.duplicates(), blocks.first_duplicate());
  }
  const double seconds = batch.seconds();
  // Users without a row are not answered. A batch that went on has no rate of its own.
  std::string users = std::to_string(counts.answered), rate;
  if (counts.answered < counts.users) users += fmt::format(" of {}", counts.users);
  if (!batch.went_on()) {
    const double each_second = static_cast<double>(counts.answered) / seconds;
    rate = fmt::format(", {} users/s", format_count(each_second));
  }
  log::info("recommend", "{}: {} users, {} rows in {}{}", output, users, counts.rows,
            format_duration(seconds), rate);
  log::info("recommend", "at the same time: {}", batch.stage_seconds());
}

void check_flags(const BatchFlags& flags, const BatchArguments& arguments, bool several) {
  if (flags.output.empty()) {
    throw_error<UsageError>("--users needs --output FILE.csv, FILE.jsonl or FILE.parquet");
  }
  if (flags.exclude_seen && arguments.include_seen) {
    throw_error<UsageError>("--exclude-seen and --include-seen contradict each other: give one");
  }
  if (several && flags.users == "-") {
    throw_error<UsageError>(
        "--users - is read by one process: give several a file, which each of them reads");
  }
  const fs::path folder = fs::absolute(flags.output).parent_path();
  if (!fs::is_directory(folder)) {
    throw_error<IoError>("--output {}: there is no folder {}", flags.output, folder.string());
  }
  if (fs::is_directory(flags.output)) {
    throw_error<UsageError>("--output {} is a folder: name a file", flags.output);
  }
}

// Only the first process prints messages. Processes of one machine share its cores.
void start_process(const distributed::Launch& launch) {
  if (launch.rank != 0) log::set_level(log::Level::quiet);
  if (launch.local_size > 1) set_num_threads(num_threads() / launch.local_size);
  at::set_num_threads(num_threads());
}

// group: created here if there are several processes; left in place if this throws.
int run_batch(const BatchFlags& flags, const BatchArguments& arguments,
              const distributed::Launch& launch, std::unique_ptr<ProcessGroup>& group) {
  check_flags(flags, arguments, launch.size > 1);
  const serving::OutputFormat format = serving::output_format(flags.output);
  start_process(launch);
  const training::InterruptGuard interrupt(/*ignore_later=*/launch.size > 1);
  const auto check_stop = [&] {
    if (interrupt.signal() != 0) throw Stopped();
  };
  const bool all = flags.users == "all";
  std::optional<serving::UnfinishedBatch> unfinished;  // once it is open
  const auto what_is_left = [&] {
    return unfinished && unfinished->holds_blocks_or_remove()
               ? fmt::format("{} keeps what is done: the same command with --resume goes on",
                             unfinished->folder().string())
               : std::string("nothing is done yet");
  };
  try {
    std::unique_ptr<serving::RequestReader> reader;
    if (!all) {
      reader = serving::open_requests(flags.users, serving::table_format(flags.users, flags.format),
                                      {.user_column = flags.user_column,
                                       .delimiter = flags.delimiter,
                                       .interrupted = check_stop});
    }
    const at::Device device =
        training::choose_device(arguments.device, /*required_sm=*/"", launch.local_rank);
    const serving::ColdUsers cold = cold_users(flags.cold_users);
    const serving::TrainedRun run = serving::open_trained_run(
        arguments.run, {.checkpoint = arguments.checkpoint,
                        .data = arguments.data,
                        .device = device,
                        .needs_dataset = all || !reader->gives_histories() ||
                                         cold == serving::ColdUsers::popularity,
                        .without_dataset = ", for the events of users; --users with a file of "
                                           "histories does without"});
    if (all) reader = serving::read_all_users(*run.dataset);
    std::vector<int64_t> allowed = allowed_items(flags, *run.vocabulary);
    const int64_t items = allowed.empty() ? run.vocabulary->num_items() : std::ssize(allowed);
    if (arguments.top_k > items) {
      log::warning("recommend", "--top-k is {}, but there are {} items: users get fewer",
                   arguments.top_k, items);
    }
    const int64_t top_k = std::min(arguments.top_k, items);
    serving::RequestBlocks blocks(
        *reader, {.defaults = defaults_of(arguments, run, allowed, !flags.only.empty()),
                  .most_users = flags.batch_size,
                  .most_history = run.predictor->spec().max_history,
                  .top_k = top_k,
                  .users_are_known = all});
    const bool retrieval = run.predictor->is_retrieval();
    serving::BatchProgress progress;
    const serving::BatchOptions options{
        .top_k = top_k,
        .allowed = std::move(allowed),
        .exclude_seen = flags.exclude_seen || (retrieval && !arguments.include_seen),
        .skip_unknown = arguments.skip_unknown,
        .cold_users = cold,
        .stop = [&] { return interrupt.signal() != 0; },
        .answered = [&](int64_t users) { progress.answered(users); }};
    const serving::BatchRecommender recommender(run, options);
    // Processes share files and exchange heartbeats only, which need no NCCL.
    group = launch.size > 1 ? std::make_unique<ProcessGroup>(launch, at::kCPU, kProcessTimeout)
                            : std::make_unique<ProcessGroup>();
    if (launch.size > 1) {
      log::info("recommend", "{} processes, {}", launch.size, group->backend());
    }
    serving::UnfinishedBatch folder(flags.output, settings_of(flags, arguments, run, options));
    if (group->is_first()) {
      const int64_t found = folder.open(flags.resume);
      if (flags.resume && found == 0) {
        log::info("recommend", "there is no {}: starting from the beginning",
                  folder.folder().string());
      }
      unfinished.emplace(folder);
    }
    group->barrier("opening of the output");
    BatchJob batch(run, *reader, blocks, recommender, folder, *group, progress, check_stop);
    const BatchReport report = batch.run(all ? "the data set" : flags.users, format);
    if (group->is_first()) {
      summarise(report, blocks, flags.cold_users, flags.output, batch);
    }
    group->leave();
  } catch (const Stopped&) {
    log::info("recommend", "stopped: {} was not written; {}", flags.output, what_is_left());
    if (group) group->fail("stopped by a signal");
    return 128 + interrupt.signal();
  } catch (const Error&) {
    if (unfinished && unfinished->holds_blocks_or_remove()) {
      log::info("recommend", "{}", what_is_left());
    }
    throw;
  }
  return 0;
}

}  // namespace

void BatchFlags::add_to(CLI::App& app) {
  app.add_option("--output", output, "--users: FILE.csv, .jsonl or .parquet")->check(kPath);
  app.add_option("--format", format, "--users: lines, csv, tsv, jsonl or parquet");
  app.add_option("--user-column", user_column, "--users: which column is the user");
  app.add_option("--delimiter", delimiter, "--users: between fields of a CSV file, such as ';'");
  app.add_option("--cold-users", cold_users, "--users: error, skip or popularity")
      ->check(CLI::IsMember({"error", "skip", "popularity"}))
      ->option_text("TEXT=error");
  app.add_option("--exclude", exclude, "--users: FILE of items to leave out")->check(kPath);
  app.add_option("--only", only, "--users: FILE of the only items")->check(kPath);
  app.add_flag("--exclude-seen", exclude_seen, "--users: no items of the history");
  app.add_flag("--resume", resume, "--users: go on with an interrupted batch");
  app.add_option("--batch-size", batch_size, "--users: users in memory at a time")
      ->check(whole_number(1))
      ->capture_default_str();
}

void BatchFlags::check_not_given(const CLI::App& app) {
  for (const char* flag : {"--output", "--format", "--user-column", "--delimiter", "--cold-users",
                           "--exclude", "--only", "--exclude-seen", "--resume", "--batch-size"}) {
    if (app.count(flag) > 0) {
      throw_error<UsageError>("{} is for many users: give --users with it", flag);
    }
  }
}

int recommend_batch(const BatchFlags& flags, const BatchArguments& arguments) {
  const auto launch = distributed::Launch::from_environment();
  std::unique_ptr<ProcessGroup> group;
  if (launch.size == 1) return run_batch(flags, arguments, launch, group);
  try {
    return run_batch(flags, arguments, launch, group);
  } catch (const std::exception& error) {
    // Tell the other processes why. Nothing is unwound: a collective may be in progress.
    fmt::print(stderr, "seqfuse: rank {}: {}\n", launch.rank, error.what());
    std::fflush(nullptr);
    if (group) group->fail(error.what());
    _exit(dynamic_cast<const UsageError*>(&error) != nullptr ? 2 : 1);
  }
}

}  // namespace seqfuse::cli
