#include "serving/request_window.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <span>
#include <utility>

#include "base/error.h"
#include "serving/action_names.h"

namespace seqfuse::serving {
namespace {

// time + times * gap, saturated at the ends of int64.
int64_t later(int64_t time, int64_t gap, int64_t times) {
  __extension__ using Wide = __int128;
  const Wide sum = time + Wide{gap} * times;
  return static_cast<int64_t>(std::clamp<Wide>(sum, std::numeric_limits<int64_t>::min(),
                                               std::numeric_limits<int64_t>::max()));
}

bool ranks(const models::hstu::ModelSpec& spec) {
  return spec.task == models::hstu::Task::ranking;
}

void check_fields(const data::Manifest& manifest, const models::hstu::ModelSpec& spec,
                  const Request& request) {
  if (ranks(spec) && (!request.candidates || request.candidates->empty())) {
    throw_error<UsageError>(
        "this is a ranking run, which orders given items: name them with --candidates "
        "\"id,id,...\", or train a retrieval run to choose from all items");
  }
  if (!ranks(spec) && request.candidates) {
    throw_error<UsageError>(
        "this is a retrieval run, which chooses from all items: leave out --candidates");
  }
  if (request.user.has_value() == request.items.has_value()) {
    throw_error<UsageError>("recommend for whom? Give either --user or --history");
  }
  if (request.user && (request.actions || request.timestamps || !request.context.empty())) {
    throw_error<UsageError>(
        "--actions, --timestamps and --context describe a --history: those of user '{}' are in the "
        "dataset",
        *request.user);
  }
  if (!manifest.has_timestamps && (request.timestamps || request.request_time)) {
    throw_error<UsageError>("dataset {} has no times: leave out --timestamps and --request-time",
                            manifest.dataset_name);
  }
}

std::string some_of(const Texts& ids) {
  constexpr size_t kShown = 5;
  const auto some = std::span(ids).first(std::min(ids.size(), kShown));
  return fmt::format("'{}'{}", fmt::join(some, "', '"), some.size() < ids.size() ? ", ..." : "");
}

void check_not_all_unknown(const std::vector<int64_t>& items, const Texts& unknown,
                           const char* what) {
  if (!items.empty() || unknown.empty()) return;
  throw_error<UsageError>("the dataset has none of the {} given: {}", what, some_of(unknown));
}

void check_not_empty(const History& history, const Request& request) {
  if (!history.items.empty()) return;
  if (request.user) {
    throw_error<UsageError>(
        "user '{}' has no events, and a retrieval run recommends what follows them: give another "
        "--user, or --history",
        *request.user);
  }
  throw_error<UsageError>(
      "the history has no items, and a retrieval run recommends what follows them: give one or "
      "more");
}

Texts warnings_of_unknown(const Texts& events, const Texts& candidates) {
  Texts parts;
  if (!events.empty()) {
    parts.push_back(fmt::format("{} of the history ({})", events.size(), some_of(events)));
  }
  if (!candidates.empty()) {
    parts.push_back(
        fmt::format("{} of the candidates ({})", candidates.size(), some_of(candidates)));
  }
  if (parts.empty()) return {};
  return {
      fmt::format("items that the dataset does not have are left out: {}", fmt::join(parts, ", "))};
}

// Warnings about parts of the request that this model does not read.
Texts warnings_of_unread(const models::hstu::ModelSpec& spec, const Request& request) {
  Texts warnings;
  const auto add = [&](bool given, bool read, const char* what) {
    if (given && !read) {
      warnings.push_back(fmt::format("the model reads no {}: the given ones have no effect", what));
    }
  };
  add(request.timestamps || request.request_time, spec.reads_times(), "times");
  add(request.actions.has_value(), spec.reads_actions(), "actions");
  add(!request.context.empty(), spec.reads_context(), "context");
  return warnings;
}

// Fills in what the request does not say about its events, and warns.
Texts complete(const Lookup& lookup, const models::hstu::ModelSpec& spec, int64_t gap,
               int64_t request_time, History& history) {
  const data::Manifest& manifest = lookup.vocabulary.manifest();
  Texts warnings;
  const int64_t events = std::ssize(history.items);
  if (manifest.has_timestamps && history.timestamps.empty()) {
    for (int64_t i = 0; i < events; ++i) {
      history.timestamps.push_back(later(request_time, gap, i - events));
    }
    if (spec.reads_times() && events > 0) {
      warnings.push_back(
          fmt::format("the model reads times, and the history has none (--timestamps): events are "
                      "taken to be {} apart, as is typical of the dataset",
                      gap));
    }
  }
  if (manifest.action_kind != data::ActionKind::none && history.actions.empty()) {
    const int64_t action = spec.reads_actions() ? lookup.typical.action : 0;
    history.actions.assign(events, action);
    if (spec.reads_actions() && events > 0) {
      warnings.push_back(
          fmt::format("the model reads actions, and the history has none (--actions): all are "
                      "taken to be '{}', the most common of the dataset",
                      action_text(manifest, action)));
    }
  }
  return warnings;
}

int64_t time_of_request(const data::Manifest& manifest, const Request& request,
                        const History& history, int64_t gap) {
  const bool known = !history.timestamps.empty();
  if (!request.request_time) {
    return known ? later(history.timestamps.back(), gap, 1)
                 : later(0, gap, std::ssize(history.items));
  }
  const int64_t time = read_time(manifest, *request.request_time, request.time_format.get());
  if (known && time < history.timestamps.back()) {
    throw_error<UsageError>(
        "the time of the request, {}, is before that of the last event, {}: give a later "
        "--request-time",
        time, history.timestamps.back());
  }
  return time;
}

const data::Dataset& dataset_of(const Lookup& lookup) {
  if (lookup.dataset != nullptr) return *lookup.dataset;
  throw_error<UsageError>(
      "--user needs the events of users, which are in the dataset and not in the run: give it "
      "with --data, or give the user's events with --history");
}

data::Batch one_window(const data::Manifest& manifest, const History& history,
                       const std::vector<int64_t>& candidates, int64_t request_time,
                       int64_t max_history) {
  const int64_t events = std::min<int64_t>(std::ssize(history.items), max_history);
  const auto newest = [&](const std::vector<int64_t>& values) {
    std::vector<int64_t> window;
    window.reserve(events + candidates.size());
    window.assign(values.end() - events, values.end());
    return window;
  };
  data::Batch batch;
  batch.users = {history.user};
  batch.items = newest(history.items);
  batch.items.insert(batch.items.end(), candidates.begin(), candidates.end());
  if (manifest.action_kind != data::ActionKind::none) {
    batch.actions = newest(history.actions);
    batch.actions.resize(batch.items.size(), 0);  // of candidates, which no model reads
  }
  if (manifest.has_timestamps) {
    batch.timestamps = newest(history.timestamps);
    batch.timestamps.resize(batch.items.size(), request_time);
  }
  batch.offsets = {0, std::ssize(batch.items)};
  batch.num_candidates = {std::ssize(candidates)};
  for (const int64_t value : history.context) batch.context.push_back({value});
  return batch;
}

void remove_unwanted(const UnwantedCandidates& unwanted, const std::vector<int64_t>& history,
                     std::vector<int64_t>& candidates) {
  const auto has = [](std::span<const int64_t> ascending, int64_t item) {
    return std::binary_search(ascending.begin(), ascending.end(), item);
  };
  if (!unwanted.allowed.empty()) {
    std::erase_if(candidates, [&](int64_t item) { return !has(unwanted.allowed, item); });
  }
  if (!unwanted.seen || candidates.empty()) return;
  std::vector<int64_t> seen = history;
  std::sort(seen.begin(), seen.end());
  std::erase_if(candidates, [&](int64_t item) { return has(seen, item); });
}

}  // namespace

RequestWindow request_window(const Lookup& lookup, const models::hstu::ModelSpec& spec,
                             const Request& request, bool skip_unknown,
                             const UnwantedCandidates& unwanted) {
  check_fields(lookup.vocabulary.manifest(), spec, request);
  History history = request.user ? user_history(dataset_of(lookup), *request.user)
                                 : given_history(lookup.vocabulary, request, skip_unknown);
  return request_window(lookup, spec, request, std::move(history), skip_unknown, unwanted);
}

RequestWindow request_window(const Lookup& lookup, const models::hstu::ModelSpec& spec,
                             const Request& request, History history, bool skip_unknown,
                             const UnwantedCandidates& unwanted) {
  const data::Vocabulary& vocabulary = lookup.vocabulary;
  const data::Manifest& manifest = vocabulary.manifest();
  check_fields(manifest, spec, request);
  FoundItems candidates;
  if (request.candidates) {
    candidates = find_items(vocabulary, *request.candidates, "candidates", skip_unknown);
  }
  check_not_all_unknown(history.items, history.unknown, "items of the history");
  check_not_all_unknown(candidates.items, candidates.unknown, "candidates");
  remove_unwanted(unwanted, history.items, candidates.items);
  if (!ranks(spec)) check_not_empty(history, request);

  RequestWindow window;
  window.warnings = warnings_of_unknown(history.unknown, candidates.unknown);
  window.unknown = std::ssize(history.unknown) + std::ssize(candidates.unknown);
  const auto add_warnings = [&](const Texts& more) {
    window.warnings.insert(window.warnings.end(), more.begin(), more.end());
  };
  add_warnings(warnings_of_unread(spec, request));
  const int64_t gap = spec.reads_times() ? lookup.typical.gap : 0;
  const int64_t request_time = time_of_request(manifest, request, history, gap);
  add_warnings(complete(lookup, spec, gap, request_time, history));
  static const std::vector<int64_t> kUnknownItem = {0};
  window.batch = one_window(manifest, history, ranks(spec) ? candidates.items : kUnknownItem,
                            request_time, spec.max_history);
  window.seen = std::move(history.items);
  window.candidates = std::move(candidates.items);
  return window;
}

}  // namespace seqfuse::serving
