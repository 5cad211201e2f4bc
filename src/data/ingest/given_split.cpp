#include "data/ingest/given_split.h"

#include <algorithm>
#include <cctype>

#include "base/error.h"
#include "data/read/text_encoding.h"

namespace seqfuse::data {
namespace {

bool is_letter(char c) {
  return std::isalpha(static_cast<unsigned char>(c)) != 0;
}

std::optional<Part> part_of_word(std::string_view word) {
  if (word == "train" || word == "training") return Part::train;
  if (word == "valid" || word == "validation" || word == "val" || word == "dev") {
    return Part::validation;
  }
  if (word == "test" || word == "testing") return Part::test;
  return std::nullopt;
}

}  // namespace

std::optional<Part> part_of(std::string_view base_name) {
  std::optional<Part> found;
  std::string word;
  for (size_t i = 0; i <= base_name.size(); ++i) {
    if (i < base_name.size() && is_letter(base_name[i])) {
      word += static_cast<char>(std::tolower(static_cast<unsigned char>(base_name[i])));
      continue;
    }
    const auto part = part_of_word(word);
    word.clear();
    if (!part) continue;
    if (found && *found != *part) return std::nullopt;
    found = part;
  }
  return found;
}

void GivenSplit::add(std::span<const Event> events, Part part, uint32_t user_bound) {
  if (users_.size() < user_bound) users_.resize(user_bound);
  events_[static_cast<size_t>(part)] += std::ssize(events);
  for (const Event& event : events) {
    User& user = users_[event.user];
    if (part == Part::train) {
      user.last_train =
          user.train_events++ == 0 ? event.point() : std::max(user.last_train, event.point());
    } else if (part == Part::validation) {
      user.validation = event.point();
      ++user.validation_events;
    } else {
      user.test = event.point();
      ++user.test_events;
    }
  }
}

std::string GivenSplit::problem(const User& user) const {
  if (user.train_events == 0 || user.validation_events != 1 || user.test_events != 1) {
    return fmt::format("has {} training, {} validation and {} test events", user.train_events,
                       user.validation_events, user.test_events);
  }
  if (user.validation < user.last_train) return "has training events after the validation event";
  if (user.test < user.validation) return "has a validation event after the test event";
  return "";
}

void GivenSplit::check(const IdTable& users) const {
  std::string first;
  int64_t differ = 0, all = 0;
  for (const uint32_t code : users.sorted_codes()) {
    if (code >= users_.size()) continue;
    const User& user = users_[code];
    if (user.train_events + user.validation_events + user.test_events == 0) continue;
    ++all;
    const std::string what = problem(user);
    if (what.empty()) continue;
    if (differ++ == 0) first = fmt::format("user '{}' {}", excerpt(users.text(code)), what);
  }
  if (differ == 0) return;
  throw_error<DataError>(
      "--given-split: {}; expected training events, then one validation event, then one test "
      "event, as split leave_one_out has it ({} of {} users differ)\n"
      "  for other splits, give all events without --given-split, and set DatasetArgs.split to "
      "temporal or user",
      first, differ, all);
}

}  // namespace seqfuse::data
