#include "serving/batch/batch_progress.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/progress.h"

namespace seqfuse::serving {

void BatchProgress::read(int64_t users, std::optional<double> share) {
  if (share && *share > 0) expected_ = static_cast<double>(users) / *share;
}

std::string BatchProgress::text(double seconds, int processes) const {
  const auto now = static_cast<double>(answered_ * processes);
  const double done = now + static_cast<double>(before_ * processes);
  const double expected = expected_, rate = seconds > 0 ? now / seconds : 0;
  std::string text = fmt::format("{} users, {} users/s", format_count(done), format_count(rate));
  if (expected <= 0) return text;
  text += fmt::format(", {:.0f} %", 100 * std::min(1.0, done / expected));
  if (rate > 0) {
    text += fmt::format(", {} left", format_duration(std::max(0.0, expected - done) / rate));
  }
  return text;
}

}  // namespace seqfuse::serving
