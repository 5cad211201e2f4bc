#include "cli/ids_file.h"

#include <bit>
#include <charconv>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "base/file.h"

namespace seqfuse::cli {
namespace {

// "5, 34 63": numbers between commas and white space.
std::vector<int64_t> ids_of_text(const std::string& text, const std::string& file) {
  std::vector<int64_t> ids;
  const char* const end = text.data() + text.size();
  for (const char* at = text.data(); at != end;) {
    if (*at < '0' || *at > '9') {
      ++at;
      continue;
    }
    int32_t id = 0;
    const auto [stop, error] = std::from_chars(at, end, id);
    SEQFUSE_CHECK_AS(DataError, error == std::errc(), "{}: the id {} is above {}", file,
                     std::string(at, stop), std::numeric_limits<int32_t>::max());
    ids.push_back(id);
    at = stop;
  }
  return ids;
}

}  // namespace

std::vector<int64_t> read_ids(const std::string& file) {
  static_assert(std::endian::native == std::endian::little);
  const std::string content = read_file(file);
  if (content.find_first_not_of("0123456789, \t\r\n") == std::string::npos) {
    return ids_of_text(content, file);
  }
  SEQFUSE_CHECK_AS(DataError, content.size() % sizeof(int32_t) == 0,
                   "{}: it has {} bytes; expected a multiple of 4 (raw little-endian int32), or "
                   "ids as text with commas or spaces between them",
                   file, content.size());
  std::vector<int32_t> ids(content.size() / sizeof(int32_t));
  std::memcpy(ids.data(), content.data(), content.size());
  return {ids.begin(), ids.end()};
}

}  // namespace seqfuse::cli
