#include "serving/history.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <string>

#include "base/error.h"
#include "base/names.h"
#include "data/batch/split.h"
#include "data/read/field_values.h"
#include "data/read/time_format.h"
#include "data/read/times.h"
#include "serving/action_names.h"

namespace seqfuse::serving {
namespace {

// Trims text and refuses a blank. place: index in the list, from 0.
std::string_view not_blank(std::string_view text, const char* list, size_t place) {
  const std::string_view trimmed = data::trim(text);
  if (!trimmed.empty()) return trimmed;
  throw_error<UsageError>("number {} of the {} is blank: give what the source of the dataset has",
                          place + 1, list);
}

void check_length(const std::optional<Texts>& texts, const char* what, size_t items) {
  if (!texts || texts->size() == items) return;
  throw_error<UsageError>("{}: {} given for {} items of the history: give one for each item", what,
                          texts->size(), items);
}

std::vector<int64_t> read_times(const data::Manifest& manifest, const Request& request) {
  const Texts& texts = *request.timestamps;
  std::vector<int64_t> times;
  for (const std::string& text : texts) {
    const size_t place = times.size();
    times.push_back(
        read_time(manifest, not_blank(text, "timestamps", place), request.time_format.get()));
    if (place > 0 && times[place] < times[place - 1]) {
      throw_error<UsageError>(
          "timestamp {}, '{}', is earlier than '{}' before it: give events oldest first", place + 1,
          text, texts[place - 1]);
    }
  }
  return times;
}

std::vector<int64_t> read_actions(const data::Manifest& manifest, const Texts& texts) {
  std::vector<int64_t> actions;
  for (const std::string& text : texts) {
    actions.push_back(find_action(manifest, not_blank(text, "actions", actions.size())));
  }
  return actions;
}

int64_t read_context(const data::Vocabulary& vocabulary, size_t feature, std::string_view value) {
  const auto f = static_cast<int64_t>(feature);
  if (const auto index = vocabulary.find_context(f, data::trim(value))) return *index;
  const data::ContextFeature& known = vocabulary.manifest().context[feature];
  throw_error<UsageError>(
      "'{}' is no value of context feature {} in {}: give one of the source{}, or leave the "
      "feature out, which makes it unknown",
      value, known.name, vocabulary.directory().string(),
      known.vocab_size > 1 ? fmt::format(", such as '{}'", vocabulary.context_value(f, 1)) : "");
}

std::vector<int64_t> read_contexts(const data::Vocabulary& vocabulary, const Request& request) {
  const data::Manifest& manifest = vocabulary.manifest();
  std::vector<int64_t> values(manifest.context.size());
  std::vector<bool> given(values.size());
  Texts names;
  for (const data::ContextFeature& feature : manifest.context) names.push_back(feature.name);
  for (const auto& [name, value] : request.context) {
    const auto feature =
        static_cast<size_t>(std::find(names.begin(), names.end(), name) - names.begin());
    if (feature == names.size()) {
      throw_error<UsageError>("dataset {} has no context feature '{}'{}: it has {}",
                              manifest.dataset_name, name, did_you_mean(name, names),
                              names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", ")));
    }
    if (given[feature]) {
      throw_error<UsageError>("context feature '{}' is given twice: give it once", name);
    }
    given[feature] = true;
    values[feature] = read_context(vocabulary, feature, value);
  }
  return values;
}

}  // namespace

int64_t read_time(const data::Manifest& manifest, std::string_view text,
                  const data::TimeFormat* format) {
  const std::string_view trimmed = data::trim(text);
  const int64_t units = manifest.time_units_per_second;
  if (format != nullptr) {
    if (units <= 0) {
      throw_error<UsageError>(
          "--time-format '{}': the times of dataset {} are plain numbers, so give numbers in the "
          "same "
          "unit and leave out --time-format",
          format->text(), manifest.dataset_name);
    }
    if (const auto time = format->parse(trimmed, units)) return time->value;
    throw_error<UsageError>("'{}' is not a time in --time-format '{}', such as '{}'", text,
                            format->text(), format->example());
  }
  if (const auto number = data::parse_time_number(trimmed)) return number->value;
  if (const auto time = data::parse_iso8601(trimmed, std::max<int64_t>(units, 1))) {
    if (units > 0) return time->value;
    throw_error<UsageError>(
        "'{}' is a date, but the times of dataset {} are plain numbers: give a number in the same "
        "unit",
        text, manifest.dataset_name);
  }
  throw_error<UsageError>(
      "'{}' is not a time: give a number in the unit of the dataset's times{}", text,
      units > 0 ? ", ISO 8601, such as 2024-05-06T07:08:09, or --time-format" : "");
}

FoundItems find_items(const data::Vocabulary& vocabulary, const Texts& ids, const char* list,
                      bool skip_unknown) {
  FoundItems found;
  for (size_t place = 0; place < ids.size(); ++place) {
    const std::string_view id = not_blank(ids[place], list, place);
    const auto item = vocabulary.find_item(id);
    if (item) {
      found.items.push_back(*item);
      found.places.push_back(place);
      continue;
    }
    if (!skip_unknown) {
      throw_error<UsageError>(
          "item '{}' is not among the {} items of {}: give ids of the source, such as '{}', or "
          "--skip-unknown to leave it out",
          id, vocabulary.num_items(), vocabulary.directory().string(), vocabulary.item_id(1));
    }
    found.unknown.emplace_back(id);
  }
  return found;
}

History user_history(const data::Dataset& dataset, std::string_view id) {
  id = data::trim(id);
  if (id.empty()) {
    throw_error<UsageError>("the user is blank: give an id of the source, such as '{}'",
                            dataset.user_id(0));
  }
  const auto row = dataset.find_user(id);
  if (!row) {
    throw_error<UsageError>(
        "user '{}' is not among the {} users of {}: give an id of the source, such as '{}', or "
        "--history",
        id, dataset.num_users(), dataset.directory().string(), dataset.user_id(0));
  }
  const data::Sample whole{.user = *row, .end = std::ssize(dataset.user(*row).items)};
  dataset.check_unchanged(&whole, 1);
  return user_history(dataset, *row);
}

History user_history(const data::Dataset& dataset, int64_t row) {
  const data::UserSequence events = dataset.user(row);
  History history{.user = row,
                  .items = {events.items.begin(), events.items.end()},
                  .actions = {events.actions.begin(), events.actions.end()},
                  .timestamps = {events.timestamps.begin(), events.timestamps.end()}};
  for (int64_t feature = 0; feature < std::ssize(dataset.manifest().context); ++feature) {
    history.context.push_back(dataset.context(feature, row));
  }
  return history;
}

History given_history(const data::Vocabulary& vocabulary, const Request& request,
                      bool skip_unknown) {
  const Texts& ids = *request.items;
  check_length(request.timestamps, "timestamps", ids.size());
  check_length(request.actions, "actions", ids.size());
  FoundItems found = find_items(vocabulary, ids, "history", skip_unknown);
  const auto of_found = [&](const std::vector<int64_t>& all) {
    std::vector<int64_t> values;
    for (const size_t place : found.places) values.push_back(all[place]);
    return values;
  };
  History history;
  if (request.timestamps) {
    history.timestamps = of_found(read_times(vocabulary.manifest(), request));
  }
  if (request.actions) {
    history.actions = of_found(read_actions(vocabulary.manifest(), *request.actions));
  }
  history.items = std::move(found.items);
  history.context = read_contexts(vocabulary, request);
  history.unknown = std::move(found.unknown);
  return history;
}

}  // namespace seqfuse::serving
