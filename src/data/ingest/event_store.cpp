#include "data/ingest/event_store.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>

#include "base/error.h"

namespace seqfuse::data {
namespace {

constexpr size_t kWriteEvents = size_t{1} << 15;  // minimum per write()

}  // namespace

// Events grouped by user in an unlinked temporary file.
class EventStore::Run {
 public:
  explicit Run(const std::filesystem::path& path)
      : name_(path.string()),
        file_(open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600)) {
    if (file_ < 0) throw_errno("cannot create the temporary file " + name_);
    unlink(path.c_str());
  }
  ~Run() { close(file_); }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  void write(const std::vector<Event>& events) {
    const char* bytes = reinterpret_cast<const char*>(events.data());
    for (size_t left = events.size() * sizeof(Event); left > 0;) {
      const ssize_t n = ::write(file_, bytes, left);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) throw_errno("cannot write the temporary file " + name_);
      bytes += n;
      left -= static_cast<size_t>(n);
    }
    size_ += events.size();
  }

  size_t size() const { return size_; }

  // Copies events [begin, begin + out.size()).
  void read(size_t begin, std::span<Event> out) const {
    char* bytes = reinterpret_cast<char*>(out.data());
    auto offset = static_cast<off_t>(begin * sizeof(Event));
    for (size_t left = out.size_bytes(); left > 0;) {
      const ssize_t n = pread(file_, bytes, left, offset);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) throw_errno("cannot read back the temporary file " + name_);
      bytes += n;
      offset += n;
      left -= static_cast<size_t>(n);
    }
  }

  // The first event whose user is at or after the position.
  size_t lower_bound(int64_t position, const std::vector<uint32_t>& positions) const {
    size_t low = 0, high = size_;
    while (low < high) {
      const size_t middle = low + (high - low) / 2;
      Event event;
      read(middle, {&event, 1});
      if (positions[event.user] < position) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  }

 private:
  std::string name_;
  int file_;
  size_t size_ = 0;
};

EventStore::EventStore(std::filesystem::path directory, int64_t buffer_bytes, const IdTable& users)
    : directory_(std::move(directory)),
      buffer_bytes_(std::max<int64_t>(1 << 20, buffer_bytes)),
      users_(users) {}

EventStore::~EventStore() = default;

void EventStore::append(std::span<const std::span<const Event>> pieces, int file) {
  const uint32_t bound = users_.code_bound();
  if (counts_.size() < bound) {
    counts_.resize(bound);
    files_.resize(bound);
  }
  for (const auto events : pieces) {
    for (const Event& event : events) {
      ++counts_[event.user];
      files_[event.user] |= uint64_t{1} << file;
      has_fractions_ |= event.fraction != 0 && event.fraction != Time::kBlank;
    }
    num_events_ += static_cast<int64_t>(events.size());
  }
  blocks_.append(pieces, bound);
  if (blocks_.bytes() > buffer_bytes_) spill();
}

void EventStore::spill() {
  Run& run = *runs_.emplace_back(
      std::make_unique<Run>(directory_ / ("run-" + std::to_string(runs_.size()))));
  std::vector<Event> events;
  for (const uint32_t user : users_.sorted_codes()) {
    blocks_.copy(user, events);
    if (events.size() < kWriteEvents) continue;
    run.write(events);
    events.clear();
  }
  run.write(events);
  blocks_.clear();
}

void EventStore::finish() {
  positions_.resize(users_.code_bound());
  for (const uint32_t code : users_.sorted_codes()) {
    if (code >= counts_.size() || counts_[code] == 0) continue;
    positions_[code] = static_cast<uint32_t>(codes_.size());
    codes_.push_back(code);
  }
}

int64_t EventStore::count(int64_t position) const {
  return counts_[user_code(position)];
}
uint64_t EventStore::files(int64_t position) const {
  return files_[user_code(position)];
}

void EventStore::load(int64_t begin, int64_t end, std::vector<Event>& events) const {
  std::vector<std::vector<Event>> pieces;
  for (const auto& run : runs_) {
    const size_t from = run->lower_bound(begin, positions_);
    const size_t to = end == num_users() ? run->size() : run->lower_bound(end, positions_);
    pieces.emplace_back(to - from);
    run->read(from, pieces.back());
  }
  events.clear();
  std::vector<size_t> next(pieces.size());
  for (int64_t position = begin; position < end; ++position) {
    const uint32_t user = user_code(position);
    for (size_t r = 0; r < pieces.size(); ++r) {
      const std::vector<Event>& piece = pieces[r];
      while (next[r] < piece.size() && piece[next[r]].user == user)
        events.push_back(piece[next[r]++]);
    }
    blocks_.copy(user, events);
  }
}

}  // namespace seqfuse::data
