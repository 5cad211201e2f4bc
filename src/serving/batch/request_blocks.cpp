#include "serving/batch/request_blocks.h"

#include <algorithm>
#include <iterator>
#include <optional>

#include "base/error.h"
#include "base/hash.h"

namespace seqfuse::serving {
namespace {

constexpr int64_t kEventsAtOnce = int64_t{1} << 22;  // the most events of a block

// Each field is preceded by its length, so that different fields give different texts.
void append(const std::string& field, std::string& text) {
  fmt::format_to(std::back_inserter(text), "{}:", field.size());
  text += field;
}

void append(const std::optional<std::string>& field, std::string& text) {
  text += field ? '+' : '-';
  if (field) append(*field, text);
}

void append(const std::optional<Texts>& fields, std::string& text) {
  text += fields ? '+' : '-';
  if (!fields) return;
  fmt::format_to(std::back_inserter(text), "{};", fields->size());
  for (const std::string& field : *fields) append(field, text);
}

}  // namespace

bool RequestBlocks::Seen::add(const std::string& user) {
  return users_.insert({hash64(user, /*seed=*/0), hash64(user, /*seed=*/1)}).second;
}

RequestBlocks::RequestBlocks(RequestReader& reader, BlockOptions options)
    : reader_(reader), options_(std::move(options)) {}

const std::vector<UserRequest>& RequestBlocks::next() {
  block_.clear();
  int64_t events = 0;
  while (std::ssize(block_) < options_.most_users && events < kEventsAtOnce) {
    UserRequest request;
    if (!reader_.next(request)) break;
    if (!options_.users_are_known && !is_new(request)) continue;
    Request& asked = request.request;
    if (!asked.candidates) asked.candidates = options_.defaults.candidates;
    if (!asked.request_time) asked.request_time = options_.defaults.request_time;
    asked.time_format = options_.defaults.time_format;
    events += std::max(options_.most_history, asked.items ? std::ssize(*asked.items) : 0) +
              (asked.candidates ? std::ssize(*asked.candidates) : 0) + options_.top_k;
    block_.push_back(std::move(request));
  }
  users_ += std::ssize(block_);
  return block_;
}

bool RequestBlocks::is_new(const UserRequest& request) {
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

std::string hash_of(const std::vector<UserRequest>& requests) {
  Hasher hasher;
  std::string text;
  for (const UserRequest& request : requests) {
    text.clear();
    append(request.user, text);
    append(request.request.user, text);
    append(request.request.items, text);
    append(request.request.actions, text);
    append(request.request.timestamps, text);
    append(request.request.request_time, text);
    append(request.request.candidates, text);
    fmt::format_to(std::back_inserter(text), "{};", request.request.context.size());
    for (const auto& [feature, value] : request.request.context) {
      append(feature, text);
      append(value, text);
    }
    hasher.update(text);
  }
  return hasher.text();
}

}  // namespace seqfuse::serving
