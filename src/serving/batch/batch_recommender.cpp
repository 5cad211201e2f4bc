#include "serving/batch/batch_recommender.h"

#include <algorithm>
#include <bit>
#include <exception>
#include <utility>

#include "base/error.h"
#include "base/parallel.h"
#include "data/batch/append_windows.h"
#include "data/batch/split.h"
#include "data/read/field_values.h"
#include "serving/batch/popular_items.h"
#include "serving/history.h"
#include "serving/recommendations.h"

namespace seqfuse::serving {
namespace {

// The most that one forward pass takes. On the CPU, passes run in parallel and each is small enough
// for a core's cache.
struct PassSize {
  int64_t windows, events;
};
constexpr PassSize kCpuPass{.windows = 256, .events = 4096};
constexpr PassSize kGpuPass{.windows = 2048, .events = int64_t{1} << 17};

// Sorts items of 1..num_items and leaves each once.
void make_distinct(std::vector<int64_t>& items, int64_t num_items) {
  const int64_t words = num_items / 64 + 1;
  if (words > 4 * std::ssize(items)) {
    std::sort(items.begin(), items.end());
    items.erase(std::unique(items.begin(), items.end()), items.end());
    return;
  }
  // A bit for each item: several times faster than sorting a long history of a small catalogue.
  thread_local std::vector<uint64_t> found;
  found.assign(words, 0);
  for (const int64_t item : items) found[item / 64] |= uint64_t{1} << (item % 64);
  items.clear();
  for (int64_t word = 0; word < words; ++word) {
    for (uint64_t bits = found[word]; bits != 0; bits &= bits - 1) {
      items.push_back(word * 64 + std::countr_zero(bits));
    }
  }
}

// allowed: ascending; empty: all.
void keep_allowed(const std::vector<int64_t>& allowed, std::vector<int64_t>& items) {
  if (allowed.empty()) return;
  std::erase_if(items, [&](int64_t item) {
    return !std::binary_search(allowed.begin(), allowed.end(), item);
  });
}

void add_once(const std::string& warning, std::vector<std::string>& warnings) {
  if (std::find(warnings.begin(), warnings.end(), warning) == warnings.end()) {
    warnings.push_back(warning);
  }
}

// Adds one request to the report of its block.
void count(const PreparedRequest& request, BatchReport& report) {
  BatchCounts& counts = report.counts;
  const UserItems& answer = request.answer;
  ++counts.users;
  counts.rows += std::ssize(answer.items);
  counts.answered += !answer.items.empty();
  if (request.cold && counts.cold++ == 0) counts.first_cold = answer.user;
  counts.without_items += !request.cold && answer.items.empty();
  const std::vector<std::string>& warnings = request.window.warnings;
  const int64_t unknown = request.window.unknown;
  if (unknown > 0 && counts.unknown == 0) {
    counts.first_unknown = fmt::format("user '{}': {}", answer.user, warnings.front());
  }
  counts.unknown += unknown;
  for (size_t i = unknown > 0 ? 1 : 0; i < warnings.size(); ++i) {
    add_once(warnings[i], report.warnings);
  }
}

}  // namespace

void BatchCounts::add(const BatchCounts& later) {
  if (cold == 0) first_cold = later.first_cold;
  if (unknown == 0) first_unknown = later.first_unknown;
  users += later.users;
  rows += later.rows;
  answered += later.answered;
  cold += later.cold;
  without_items += later.without_items;
  unknown += later.unknown;
}

void BatchReport::add(const BatchReport& later) {
  counts.add(later.counts);
  for (const std::string& warning : later.warnings) add_once(warning, warnings);
}

BatchRecommender::BatchRecommender(const TrainedRun& run, BatchOptions options)
    : run_(run), options_(std::move(options)) {
  score_names_ = run.predictor->is_retrieval()
                     ? std::vector<std::string>{"score"}
                     : run.predictor->score_names(run.vocabulary->manifest().action_names);
  if (run.predictor->is_retrieval() &&
      !run.predictor->catalogue().rows().isfinite().all().item<bool>()) {
    throw_error<DataError>(
        "vectors of items have values that are not finite: the weights of {}, step {}, are "
        "damaged\n"
        "  give another --checkpoint, or train again",
        run.path.string(), run.step);
  }
  if (options_.cold_users != ColdUsers::popularity) return;
  SEQFUSE_CHECK_AS(UsageError, run.dataset != nullptr,
                   "popularity is counted in the data set, which is not open: give --data");
  popular_ = popular_items(*run.dataset);
  keep_allowed(options_.allowed, popular_);
}

// The user's row in the data set, or -1.
int64_t BatchRecommender::row_of(const UserRequest& request) const {
  if (request.row >= 0 || !request.request.user || run_.dataset == nullptr) return request.row;
  const std::string_view id = data::trim(*request.request.user);
  return id.empty() ? -1 : run_.dataset->find_user(id).value_or(-1);
}

bool BatchRecommender::is_cold(const Request& request, int64_t row) const {
  const bool needs_events = run_.predictor->is_retrieval();
  if (request.user) {
    if (run_.dataset == nullptr || data::trim(*request.user).empty()) return false;
    return row < 0 || (needs_events && run_.dataset->user(row).items.empty());
  }
  if (!needs_events || !request.items) return false;
  return request.items->empty() ||
         (options_.skip_unknown &&
          find_items(*run_.vocabulary, *request.items, "history", true).items.empty());
}

std::vector<int64_t> BatchRecommender::popular_for(const Request& request) const {
  std::vector<int64_t> items;
  if (run_.predictor->is_retrieval()) {
    items = popular_;
  } else {
    std::vector<int64_t> candidates =
        find_items(*run_.vocabulary, request.candidates.value_or(Texts()), "candidates",
                   options_.skip_unknown)
            .items;
    make_distinct(candidates, run_.vocabulary->num_items());
    std::copy_if(popular_.begin(), popular_.end(), std::back_inserter(items), [&](int64_t item) {
      return std::binary_search(candidates.begin(), candidates.end(), item);
    });
  }
  if (std::ssize(items) > options_.top_k) items.resize(options_.top_k);
  return items;
}

RequestWindow BatchRecommender::window_of(const Request& request, int64_t row) const {
  const UnwantedCandidates unwanted{.allowed = options_.allowed, .seen = options_.exclude_seen};
  const models::hstu::ModelSpec& spec = run_.predictor->spec();
  RequestWindow window =
      row < 0 ? request_window(run_.lookup(), spec, request, options_.skip_unknown, unwanted)
              : request_window(run_.lookup(), spec, request, user_history(*run_.dataset, row),
                               options_.skip_unknown, unwanted);
  if (run_.predictor->is_retrieval() && options_.exclude_seen) {
    make_distinct(window.seen, run_.vocabulary->num_items());
  } else {
    window.seen = {};
  }
  return window;
}

PreparedRequest BatchRecommender::prepare_one(const UserRequest& request, int64_t row) const {
  PreparedRequest prepared;
  prepared.answer.user = request.user;
  const bool ranks = !run_.predictor->is_retrieval();
  if (ranks && !request.request.candidates) {
    throw_error<UsageError>(
        "this is a ranking run, which orders given items: give each user some in a column "
        "'candidates', or all the same by --candidates or --only");
  }
  prepared.cold = is_cold(request.request, row);
  if (prepared.cold && options_.cold_users != ColdUsers::error) {
    if (options_.cold_users == ColdUsers::popularity) {
      prepared.answer.items = popular_for(request.request);
    }
    return prepared;
  }
  if (ranks && request.request.candidates->empty()) return prepared;
  try {
    prepared.window = window_of(request.request, row);
  } catch (const UsageError& error) {
    if (!prepared.cold) throw;
    throw_error<UsageError>(
        "{}\n  --cold-users skip leaves such users out, --cold-users popularity gives them the "
        "most popular items",
        error.what());
  }
  return prepared;
}

std::vector<PreparedRequest> BatchRecommender::prepare(
    std::span<const UserRequest> requests) const {
  std::vector<PreparedRequest> block(requests.size());
  std::vector<std::exception_ptr> failures(requests.size());  // of which the first is thrown
  parallel_for(std::ssize(requests), /*grain=*/64, [&](int64_t begin, int64_t end) {
    std::vector<int64_t> rows;
    std::vector<data::Sample> events;
    for (int64_t i = begin; i < end; ++i) {
      rows.push_back(row_of(requests[i]));
      if (rows.back() < 0) continue;
      const int64_t size = std::ssize(run_.dataset->user(rows.back()).items);
      events.push_back({.user = rows.back(), .end = size});
    }
    // One call for all, because neighbouring users share blocks of the file.
    if (!events.empty()) run_.dataset->check_unchanged(events.data(), std::ssize(events));
    for (int64_t i = begin; i < end; ++i) {
      try {
        block[i] = prepare_one(requests[i], rows[i - begin]);
      } catch (...) {
        failures[i] = std::current_exception();
      }
    }
  });
  for (size_t i = 0; i < failures.size(); ++i) {
    if (!failures[i]) continue;
    try {
      std::rethrow_exception(failures[i]);
    } catch (const UsageError& error) {
      if (requests[i].where.empty()) throw;
      throw_error<DataError>("{}: {}", requests[i].where, error.what());
    }
  }
  return block;
}

size_t BatchRecommender::end_of_pass(std::span<PreparedRequest* const> windows,
                                     size_t begin) const {
  const PassSize& size = run_.predictor->device().is_cuda() ? kGpuPass : kCpuPass;
  const size_t last = std::min(windows.size(), begin + static_cast<size_t>(size.windows));
  size_t end = begin;
  for (int64_t events = 0; end < last; ++end) {
    events += windows[end]->window.batch.num_events();
    if (end > begin && events > size.events) break;
  }
  return end;
}

void BatchRecommender::answer_pass(std::span<PreparedRequest* const> windows) const {
  std::vector<const data::Batch*> parts;
  for (const PreparedRequest* prepared : windows) parts.push_back(&prepared->window.batch);
  const data::Batch batch = data::joined_windows(parts);
  const Predictor& predictor = *run_.predictor;
  if (predictor.is_retrieval()) {
    ItemLists seen(windows.size());
    for (size_t b = 0; b < windows.size(); ++b) seen[b] = std::move(windows[b]->window.seen);
    const TopItems top = predictor.top_items(batch, options_.top_k, seen, options_.allowed);
    for (size_t b = 0; b < windows.size(); ++b) {
      UserItems& answer = windows[b]->answer;
      const auto best = top[static_cast<int64_t>(b)];
      answer.items.reserve(best.size());
      answer.scores.reserve(best.size());
      for (const auto& [item, score] : best) {
        answer.items.push_back(item);
        answer.scores.push_back(score);
      }
    }
    return;
  }
  const at::Tensor scores = predictor.candidate_scores(batch);
  const double* score = scores.const_data_ptr<double>();
  const int64_t width = std::ssize(score_names_);
  for (PreparedRequest* prepared : windows) {
    const std::vector<int64_t>& candidates = prepared->window.candidates;
    for (const int64_t place : best_first(score, std::ssize(candidates), width, options_.top_k)) {
      prepared->answer.items.push_back(candidates[place]);
      prepared->answer.scores.insert(prepared->answer.scores.end(), score + place * width,
                                     score + (place + 1) * width);
    }
    score += std::ssize(candidates) * width;
  }
}

AnsweredBlock BatchRecommender::answer(std::vector<PreparedRequest> block) const {
  std::vector<PreparedRequest*> windows;
  for (PreparedRequest& prepared : block) {
    const RequestWindow& window = prepared.window;
    const bool has_work =
        run_.predictor->is_retrieval() ? window.batch.num_events() > 0 : !window.candidates.empty();
    if (has_work) windows.push_back(&prepared);
  }
  std::vector<std::span<PreparedRequest* const>> passes;
  for (size_t begin = 0; begin < windows.size();) {
    const size_t end = end_of_pass(windows, begin);
    passes.emplace_back(windows.data() + begin, end - begin);
    begin = end;
  }
  const auto pass = [&](int64_t i) {
    if (options_.stop()) return;
    answer_pass(passes[i]);
    options_.answered(std::ssize(passes[i]));
  };
  if (run_.predictor->device().is_cuda()) {
    for (int64_t i = 0; i < std::ssize(passes); ++i) pass(i);
  } else {
    parallel_tasks(std::ssize(passes), pass);
  }
  AnsweredBlock answers;
  answers.users.reserve(block.size());
  for (PreparedRequest& prepared : block) {
    count(prepared, answers.report);
    answers.users.push_back(std::move(prepared.answer));
  }
  options_.answered(std::ssize(block) - std::ssize(windows));  // the others, without a pass
  return answers;
}

}  // namespace seqfuse::serving
