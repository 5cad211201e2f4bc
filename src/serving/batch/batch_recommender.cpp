#include "serving/batch/batch_recommender.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "base/error.h"
#include "base/parallel.h"
#include "data/batch/append_windows.h"
#include "data/read/field_values.h"
#include "serving/batch/popular_items.h"
#include "serving/history.h"
#include "serving/recommendations.h"
#include "serving/request_window.h"

namespace seqfuse::serving {
namespace {

// Of one forward pass. On the CPU the passes are the tasks of a parallel loop, and what one of them
// holds stays in a core's cache.
struct PassSize {
  int64_t windows, events;
};
constexpr PassSize kCpuPass{.windows = 256, .events = 4096};
constexpr PassSize kGpuPass{.windows = 2048, .events = int64_t{1} << 17};

std::vector<int64_t> distinct(std::vector<int64_t> items) {
  std::sort(items.begin(), items.end());
  items.erase(std::unique(items.begin(), items.end()), items.end());
  return items;
}

// allowed: ascending; empty: all.
void keep_allowed(const std::vector<int64_t>& allowed, std::vector<int64_t>& items) {
  if (allowed.empty()) return;
  std::erase_if(items, [&](int64_t item) {
    return !std::binary_search(allowed.begin(), allowed.end(), item);
  });
}

}  // namespace

struct BatchRecommender::Prepared {
  bool cold = false;
  RequestWindow window;  // unless cold
  UserItems answer;
  std::exception_ptr failure;
};

void BatchCounts::add(const BatchCounts& later) {
  if (cold == 0) first_cold = later.first_cold;
  if (unknown == 0) first_unknown = later.first_unknown;
  users += later.users;
  rows += later.rows;
  cold += later.cold;
  without_items += later.without_items;
  unknown += later.unknown;
}

void BatchReport::add(const BatchReport& later) {
  counts.add(later.counts);
  for (const std::string& warning : later.warnings) {
    if (std::find(warnings.begin(), warnings.end(), warning) == warnings.end()) {
      warnings.push_back(warning);
    }
  }
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

bool BatchRecommender::is_cold(const Request& request) const {
  const bool needs_events = run_.predictor->is_retrieval();
  if (request.user) {
    if (run_.dataset == nullptr || data::trim(*request.user).empty()) return false;
    const auto row = run_.dataset->find_user(data::trim(*request.user));
    return !row || (needs_events && run_.dataset->user(*row).items.empty());
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
    const auto candidates =
        distinct(find_items(*run_.vocabulary, request.candidates.value_or(Texts()), "candidates",
                            options_.skip_unknown)
                     .items);
    std::copy_if(popular_.begin(), popular_.end(), std::back_inserter(items), [&](int64_t item) {
      return std::binary_search(candidates.begin(), candidates.end(), item);
    });
  }
  if (std::ssize(items) > options_.top_k) items.resize(options_.top_k);
  return items;
}

BatchRecommender::Prepared BatchRecommender::prepare(const UserRequest& request) const {
  Prepared prepared;
  prepared.answer.user = request.user;
  const bool ranks = !run_.predictor->is_retrieval();
  if (ranks && !request.request.candidates) {
    throw_error<UsageError>(
        "this is a ranking run, which orders given items: give each user some in a column "
        "'candidates', or all the same by --candidates or --only");
  }
  prepared.cold = is_cold(request.request);
  if (prepared.cold && options_.cold_users != ColdUsers::error) {
    if (options_.cold_users == ColdUsers::popularity) {
      prepared.answer.items = popular_for(request.request);
    }
    return prepared;
  }
  if (ranks && request.request.candidates->empty()) return prepared;
  try {
    prepared.window = request_window(run_.lookup(), run_.predictor->spec(), request.request,
                                     options_.skip_unknown,
                                     {.allowed = options_.allowed, .seen = options_.exclude_seen});
  } catch (const UsageError& error) {
    if (!prepared.cold) throw;
    throw_error<UsageError>(
        "{}\n  --cold-users skip leaves such users out, --cold-users popularity gives them the "
        "most "
        "popular items",
        error.what());
  }
  return prepared;
}

size_t BatchRecommender::end_of_pass(std::span<Prepared* const> windows, size_t begin) const {
  const PassSize& size = run_.predictor->device().is_cuda() ? kGpuPass : kCpuPass;
  const size_t last = std::min(windows.size(), begin + static_cast<size_t>(size.windows));
  size_t end = begin;
  for (int64_t events = 0; end < last; ++end) {
    events += windows[end]->window.batch.num_events();
    if (end > begin && events > size.events) break;
  }
  return end;
}

void BatchRecommender::answer(std::span<Prepared* const> windows) const {
  data::Batch batch;
  for (const Prepared* prepared : windows) data::append_windows(batch, prepared->window.batch);
  const Predictor& predictor = *run_.predictor;
  if (predictor.is_retrieval()) {
    ItemLists seen(windows.size());
    for (size_t b = 0; options_.exclude_seen && b < windows.size(); ++b) {
      seen[b] = distinct(windows[b]->window.seen);
    }
    const TopItems top = predictor.top_items(batch, options_.top_k, seen, options_.allowed);
    for (size_t b = 0; b < windows.size(); ++b) {
      for (const auto& [item, score] : top[static_cast<int64_t>(b)]) {
        windows[b]->answer.items.push_back(item);
        windows[b]->answer.scores.push_back(score);
      }
    }
    return;
  }
  const at::Tensor scores = predictor.candidate_scores(batch);
  const double* score = scores.const_data_ptr<double>();
  const int64_t width = std::ssize(score_names_);
  for (Prepared* prepared : windows) {
    const std::vector<int64_t>& candidates = prepared->window.candidates;
    for (const int64_t place : best_first(score, std::ssize(candidates), width, options_.top_k)) {
      prepared->answer.items.push_back(candidates[place]);
      prepared->answer.scores.insert(prepared->answer.scores.end(), score + place * width,
                                     score + (place + 1) * width);
    }
    score += std::ssize(candidates) * width;
  }
}

void BatchRecommender::count(const Prepared& prepared) {
  BatchReport one;
  BatchCounts& counts = one.counts;
  counts.users = 1;
  counts.rows = std::ssize(prepared.answer.items);
  counts.cold = prepared.cold;
  if (prepared.cold) counts.first_cold = prepared.answer.user;
  counts.without_items = !prepared.cold && prepared.answer.items.empty();
  const std::vector<std::string>& warnings = prepared.window.warnings;
  counts.unknown = prepared.window.unknown;
  if (counts.unknown > 0) {
    counts.first_unknown = fmt::format("user '{}': {}", prepared.answer.user, warnings.front());
  }
  one.warnings.assign(warnings.begin() + (counts.unknown > 0), warnings.end());
  report_.add(one);
}

std::vector<UserItems> BatchRecommender::recommend(std::span<const UserRequest> requests) {
  std::vector<Prepared> all(requests.size());
  parallel_for(std::ssize(requests), /*grain=*/16, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      try {
        all[i] = prepare(requests[i]);
      } catch (...) {
        all[i].failure = std::current_exception();  // the first one of all is to be told
      }
    }
  });
  std::vector<Prepared*> windows;
  for (size_t i = 0; i < all.size(); ++i) {
    try {
      if (all[i].failure) std::rethrow_exception(all[i].failure);
    } catch (const UsageError& error) {
      if (requests[i].where.empty()) throw;
      throw_error<UsageError>("{}: {}", requests[i].where, error.what());
    }
    const RequestWindow& window = all[i].window;
    const bool has_work =
        run_.predictor->is_retrieval() ? window.batch.num_events() > 0 : !window.candidates.empty();
    if (has_work) windows.push_back(&all[i]);
  }
  std::vector<std::span<Prepared* const>> passes;
  for (size_t begin = 0; begin < windows.size();) {
    const size_t end = end_of_pass(windows, begin);
    passes.emplace_back(windows.data() + begin, end - begin);
    begin = end;
  }
  const auto pass = [&](int64_t i) {
    if (!options_.stop()) answer(passes[i]);
  };
  if (run_.predictor->device().is_cuda()) {
    for (int64_t i = 0; i < std::ssize(passes); ++i) pass(i);
  } else {
    parallel_tasks(std::ssize(passes), pass);
  }
  std::vector<UserItems> answers;
  for (Prepared& prepared : all) {
    count(prepared);
    answers.push_back(std::move(prepared.answer));
  }
  return answers;
}

}  // namespace seqfuse::serving
