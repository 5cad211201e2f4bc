#include "data/event_store.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/parallel.h"

namespace seqfuse::data {

// Events sorted by user: in memory, or in a temporary file that is already unlinked.
class EventStore::Run {
 public:
  explicit Run(std::vector<Event> events) : events_(std::move(events)), size_(events_.size()) {}
  ~Run() {
    if (file_ >= 0) close(file_);
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  void spill(const std::filesystem::path& path) {
    file_ = open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (file_ < 0) throw_errno("cannot create the temporary file " + path.string());
    unlink(path.c_str());
    const char* bytes = reinterpret_cast<const char*>(events_.data());
    for (size_t left = size_ * sizeof(Event); left > 0;) {
      const ssize_t n = write(file_, bytes, left);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) throw_errno("cannot write the temporary file " + path.string());
      bytes += n;
      left -= static_cast<size_t>(n);
    }
    events_ = {};
  }

  size_t size() const { return size_; }

  // Copies events [begin, begin + out.size()).
  void read(size_t begin, std::span<Event> out) const {
    if (file_ < 0) {
      std::copy_n(events_.begin() + static_cast<int64_t>(begin), out.size(), out.begin());
      return;
    }
    char* bytes = reinterpret_cast<char*>(out.data());
    auto offset = static_cast<off_t>(begin * sizeof(Event));
    for (size_t left = out.size_bytes(); left > 0;) {
      const ssize_t n = pread(file_, bytes, left, offset);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) throw_errno("cannot read a temporary file back");
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
  std::vector<Event> events_;
  size_t size_;
  int file_ = -1;
};

EventStore::EventStore(std::filesystem::path directory, int64_t buffer_bytes, const IdTable& users)
    : directory_(std::move(directory)),
      buffer_events_(
          static_cast<size_t>(std::max<int64_t>(1 << 16, buffer_bytes / (2 * sizeof(Event))))),
      users_(users) {}

EventStore::~EventStore() = default;

void EventStore::append(std::vector<Event> events, int file) {
  if (events.empty()) return;
  if (buffered_ > 0 && buffered_ + events.size() > buffer_events_) {
    sort_buffer();
    runs_.back()->spill(directory_ / ("run-" + std::to_string(runs_.size())));
  }
  const uint32_t bound = users_.code_bound();
  if (counts_.size() < bound) {
    counts_.resize(bound);
    files_.resize(bound);
  }
  for (const Event& event : events) {
    ++counts_[event.user];
    files_[event.user] |= uint64_t{1} << file;
  }
  buffered_ += events.size();
  num_events_ += static_cast<int64_t>(events.size());
  buffer_.push_back(std::move(events));
}

// A counting sort: where each user's events begin, then every event to its place. Threads take
// disjoint ranges of users, so that each user's events keep their order.
void EventStore::sort_buffer() {
  std::vector<size_t> next(users_.code_bound());
  for (const auto& events : buffer_) {
    for (const Event& event : events) ++next[event.user];
  }
  size_t begin = 0;
  for (const uint32_t code : users_.sorted_codes()) begin += std::exchange(next[code], begin);
  std::vector<Event> sorted(buffered_);
  constexpr size_t kRanges = 8;
  std::vector<uint8_t> range_of(next.size());
  for (size_t code = 0; code < next.size(); ++code) {
    range_of[code] = static_cast<uint8_t>(next[code] * kRanges / (buffered_ + 1));
  }
  parallel_tasks(std::min<int64_t>(num_threads(), kRanges), [&](int64_t task) {
    const auto tasks = static_cast<size_t>(std::min<int64_t>(num_threads(), kRanges));
    for (const auto& events : buffer_) {
      for (const Event& event : events) {
        if (range_of[event.user] % tasks == static_cast<size_t>(task)) {
          sorted[next[event.user]++] = event;
        }
      }
    }
  });
  buffer_.clear();
  buffered_ = 0;
  runs_.push_back(std::make_unique<Run>(std::move(sorted)));
}

void EventStore::finish() {
  if (buffered_ > 0) sort_buffer();
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

std::vector<Event> EventStore::load(int64_t begin, int64_t end) const {
  std::vector<std::vector<Event>> pieces;
  size_t total = 0;
  for (const auto& run : runs_) {
    const size_t from = run->lower_bound(begin, positions_);
    const size_t to = end == num_users() ? run->size() : run->lower_bound(end, positions_);
    pieces.emplace_back(to - from);
    run->read(from, pieces.back());
    total += to - from;
  }
  if (pieces.size() == 1) return std::move(pieces[0]);
  std::vector<Event> events;
  events.reserve(total);
  std::vector<size_t> next(pieces.size());
  for (int64_t position = begin; position < end; ++position) {
    const uint32_t user = user_code(position);
    for (size_t r = 0; r < pieces.size(); ++r) {
      const std::vector<Event>& piece = pieces[r];
      while (next[r] < piece.size() && piece[next[r]].user == user)
        events.push_back(piece[next[r]++]);
    }
  }
  return events;
}

}  // namespace seqfuse::data
