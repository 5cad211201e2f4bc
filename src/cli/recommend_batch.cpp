#include "cli/recommend_batch.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <iterator>
#include <memory>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/progress.h"
#include "cli/command_line.h"
#include "serving/batch/batch_recommender.h"
#include "serving/batch/item_list.h"
#include "serving/batch/recommendation_writer.h"
#include "serving/batch/request_reader.h"
#include "serving/trained_run.h"
#include "training/device/device.h"
#include "training/loop/interrupt.h"

namespace seqfuse::cli {
namespace fs = std::filesystem;
namespace {

using serving::UserRequest;

constexpr int64_t kEventsAtOnce = int64_t{1} << 22;  // that a block of requests may hold

// Thrown where a signal came.
struct Stopped {};

// Users that have been read, each by 128 bits of hash.
class SeenUsers {
 public:
  // False if the user has been added before.
  bool add(const std::string& user) {
    return users_.insert({hash64(user, /*seed=*/0), hash64(user, /*seed=*/1)}).second;
  }

 private:
  using Key = std::pair<uint64_t, uint64_t>;
  struct First {
    size_t operator()(const Key& key) const { return key.first; }
  };
  std::unordered_set<Key, First> users_;
};

// Requests in blocks, with what the flags say of all of them; each user once.
class Blocks {
 public:
  Blocks(serving::RequestReader& reader, serving::Request defaults, int64_t most_users,
         int64_t most_history, int64_t top_k, bool all_users)
      : reader_(reader),
        defaults_(std::move(defaults)),
        most_users_(most_users),
        most_history_(most_history),
        top_k_(top_k),
        all_users_(all_users) {}

  // Empty at the end.
  const std::vector<UserRequest>& next() {
    block_.clear();
    int64_t events = 0;
    for (UserRequest request; std::ssize(block_) < most_users_ && events < kEventsAtOnce;) {
      if (!reader_.next(request)) break;
      if (!all_users_ && !is_new(request)) continue;
      serving::Request& asked = request.request;
      if (!asked.candidates) asked.candidates = defaults_.candidates;
      if (!asked.request_time) asked.request_time = defaults_.request_time;
      events += std::max(most_history_, asked.items ? std::ssize(*asked.items) : 0) +
                (asked.candidates ? std::ssize(*asked.candidates) : 0) + top_k_;
      block_.push_back(std::move(request));
    }
    return block_;
  }

  int64_t duplicates() const { return duplicates_; }
  const std::string& first_duplicate() const { return first_duplicate_; }

 private:
  bool is_new(const UserRequest& request) {
    if (seen_.add(request.user)) return true;
    if (reader_.reads_events()) {
      throw_error<DataError>(
          "{}: user '{}' comes again after other users, which would be a second history: sort the "
          "file by user and time",
          request.where, request.user);
    }
    if (duplicates_++ == 0) first_duplicate_ = fmt::format("'{}', {}", request.user, request.where);
    return false;
  }

  serving::RequestReader& reader_;
  const serving::Request defaults_;
  const int64_t most_users_, most_history_, top_k_;
  const bool all_users_;
  SeenUsers seen_;
  std::vector<UserRequest> block_;
  int64_t duplicates_ = 0;
  std::string first_duplicate_;
};

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
      throw_error<UsageError>("--only {} names none of the {} items: nothing can be recommended",
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
    throw_error<UsageError>("--exclude {} leaves no item to recommend", flags.exclude);
  }
  return left;
}

serving::ColdUsers cold_users(const std::string& name) {
  if (name == "skip") return serving::ColdUsers::skip;
  return name == "popularity" ? serving::ColdUsers::popularity : serving::ColdUsers::error;
}

// What the flags say of every user.
serving::Request defaults_of(const BatchArguments& arguments, const serving::TrainedRun& run,
                             const std::vector<int64_t>& allowed, bool only) {
  serving::Request defaults;
  if (!arguments.request_time.empty()) defaults.request_time = arguments.request_time;
  if (!arguments.candidates.empty()) {
    defaults.candidates = serving::split_list(arguments.candidates);
  } else if (only && !run.predictor->is_retrieval()) {
    defaults.candidates.emplace();
    for (const int64_t item : allowed)
      defaults.candidates->push_back(run.vocabulary->item_id(item));
  }
  return defaults;
}

std::string left_of(const serving::RequestReader& reader, double seconds) {
  const auto done = reader.done();
  if (!done || *done <= 0) return "";
  return fmt::format("{:.0f} %, {} left", 100 * *done,
                     format_duration(seconds * (1 - *done) / *done));
}

void summarise(const serving::BatchRecommender& recommender, const Blocks& blocks,
               const std::string& cold, const std::string& output, double seconds) {
  const serving::BatchCounts& counts = recommender.counts();
  if (counts.cold > 0) {
    log::warning("recommend", "{} users of whom the model knows nothing, such as '{}': {}",
                 counts.cold, counts.first_cold,
                 cold == "skip" ? "left out" : "they get the most popular items, without scores");
  }
  if (counts.without_items > 0) {
    log::warning("recommend", "{} users get no item: nothing was left to recommend to them",
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
  log::info("recommend", "{}: {} users, {} rows in {}, {} users/s", output, counts.users,
            counts.rows, format_duration(seconds),
            format_count(static_cast<double>(counts.users) / seconds));
}

}  // namespace

void BatchFlags::add_to(CLI::App& app) {
  app.add_option("--output", output, "--users: FILE.csv, .jsonl or .parquet")->check(kPath);
  app.add_option("--format", format, "--users: lines, csv, tsv, jsonl or parquet");
  app.add_option("--user-column", user_column, "--users: which column is the user");
  app.add_option("--cold-users", cold_users, "--users: error, skip or popularity")
      ->check(CLI::IsMember({"error", "skip", "popularity"}))
      ->option_text("TEXT=error");
  app.add_option("--exclude", exclude, "--users: FILE of items to leave out")->check(kPath);
  app.add_option("--only", only, "--users: FILE of the only items")->check(kPath);
  app.add_flag("--exclude-seen", exclude_seen, "--users: no items of the history");
  app.add_option("--batch-size", batch_size, "--users: users in memory at a time")
      ->check(whole_number(1))
      ->capture_default_str();
}

void BatchFlags::check_not_given(const CLI::App& app) {
  for (const char* flag : {"--output", "--format", "--user-column", "--cold-users", "--exclude",
                           "--only", "--exclude-seen", "--batch-size"}) {
    if (app.count(flag) > 0) {
      throw_error<UsageError>("{} is for many users: give --users with it", flag);
    }
  }
}

int recommend_batch(const BatchFlags& flags, const BatchArguments& arguments) {
  if (flags.output.empty()) {
    throw_error<UsageError>("--users needs --output FILE.csv, FILE.jsonl or FILE.parquet");
  }
  if (flags.exclude_seen && arguments.include_seen) {
    throw_error<UsageError>("--exclude-seen and --include-seen contradict each other: give one");
  }
  const serving::OutputFormat format = serving::output_format(flags.output);
  const fs::path folder = fs::absolute(flags.output).parent_path();
  if (!fs::is_directory(folder)) {
    throw_error<UsageError>("--output {}: there is no folder {}", flags.output, folder.string());
  }
  const training::InterruptGuard interrupt;
  const auto check_stop = [&] {
    if (interrupt.signal() != 0) throw Stopped();
  };
  const bool all = flags.users == "all";
  std::unique_ptr<serving::RequestReader> reader;
  try {
    if (!all) {
      reader = serving::open_requests(flags.users, serving::table_format(flags.users, flags.format),
                                      flags.user_column, check_stop);
    }
    const serving::ColdUsers cold = cold_users(flags.cold_users);
    const serving::TrainedRun run = serving::open_trained_run(
        arguments.run, {.checkpoint = arguments.checkpoint,
                        .data = arguments.data,
                        .device = training::choose_device(arguments.device, /*required_sm=*/""),
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
    Blocks blocks(*reader, defaults_of(arguments, run, allowed, !flags.only.empty()),
                  flags.batch_size, run.predictor->spec().max_history,
                  std::min(arguments.top_k, items), all);
    const bool retrieval = run.predictor->is_retrieval();
    serving::BatchRecommender recommender(
        run, {.top_k = std::min(arguments.top_k, items),
              .allowed = std::move(allowed),
              .exclude_seen = flags.exclude_seen || (retrieval && !arguments.include_seen),
              .skip_unknown = arguments.skip_unknown,
              .cold_users = cold,
              .stop = [&] { return interrupt.signal() != 0; }});
    using Clock = std::chrono::steady_clock;
    const auto start = Clock::now();
    const auto seconds = [&] {
      return std::chrono::duration<double>(Clock::now() - start).count();
    };
    write_file_atomically(flags.output, [&](const fs::path& temporary) {
      const auto writer =
          serving::make_writer(temporary, {.format = format,
                                           .score_names = recommender.score_names(),
                                           .vocabulary = *run.vocabulary,
                                           .about = {{"seqfuse.run", run.path.string()},
                                                     {"seqfuse.step", std::to_string(run.step)}}});
      Progress progress("recommend", "users", 0);
      size_t warned = 0;
      for (;;) {
        check_stop();
        const std::vector<UserRequest>& block = blocks.next();
        if (block.empty()) break;
        const std::vector<serving::UserItems> answers = recommender.recommend(block);
        check_stop();
        writer->add(answers);
        for (; warned < recommender.warnings().size(); ++warned) {
          log::warning("recommend", "{}", recommender.warnings()[warned]);
        }
        progress.update(recommender.counts().users, left_of(*reader, seconds()));
      }
      if (recommender.counts().users == 0) {
        throw_error<DataError>("{} names no users", all ? "the data set" : flags.users);
      }
      writer->close();
    });
    summarise(recommender, blocks, flags.cold_users, flags.output, seconds());
  } catch (const Stopped&) {
    log::info("recommend", "stopped: {} was not written", flags.output);
    return 128 + interrupt.signal();
  }
  return 0;
}

}  // namespace seqfuse::cli
