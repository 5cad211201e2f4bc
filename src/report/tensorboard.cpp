#include "report/tensorboard.h"

#include <unistd.h>

#include <array>
#include <bit>
#include <chrono>
#include <system_error>

#include "base/error.h"

namespace seqfuse::report {
namespace fs = std::filesystem;
namespace {

constexpr std::array<uint32_t, 256> make_crc_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < table.size(); ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82F63B78 : 0);
    table[i] = crc;
  }
  return table;
}

// Little-endian on every machine.
template <class Unsigned>
std::string fixed(Unsigned value) {
  std::string bytes;
  for (size_t i = 0; i < sizeof(value); ++i) bytes += static_cast<char>(value >> (8 * i));
  return bytes;
}

std::string varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
  return bytes + static_cast<char>(value);
}

// Fields of Event, Summary.Value and SessionLog: (number << 3) | wire type.
enum Key : char {
  kWallTime = 1 << 3 | 1,
  kStep = 2 << 3,
  kFileVersion = 3 << 3 | 2,
  kSummary = 5 << 3 | 2,
  kSessionLog = 7 << 3 | 2,
  kValue = 1 << 3 | 2,
  kTag = 1 << 3 | 2,
  kSimpleValue = 2 << 3 | 5,
  kStatus = 1 << 3,
};
constexpr uint64_t kStatusStart = 1;

std::string bytes_field(Key key, std::string_view content) {
  return (static_cast<char>(key) + varint(content.size())).append(content);
}

std::string head(double wall_time) {
  return static_cast<char>(kWallTime) + fixed(std::bit_cast<uint64_t>(wall_time));
}

std::string head(double wall_time, int64_t step) {
  return head(wall_time) + static_cast<char>(kStep) + varint(static_cast<uint64_t>(step));
}

double now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string host_name() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0 || name[0] == 0) return "localhost";
  return name.data();
}

// Two files of the same second would have the same name; the later one takes the next second.
fs::path new_file(const fs::path& directory) {
  std::error_code ignored;
  for (auto seconds = static_cast<int64_t>(now());; ++seconds) {
    fs::path file = directory / fmt::format("events.out.tfevents.{}.{}", seconds, host_name());
    if (!fs::exists(file, ignored)) return file;
  }
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  static constexpr std::array<uint32_t, 256> kTable = make_crc_table();
  uint32_t crc = ~uint32_t{0};
  for (const char c : bytes) crc = (crc >> 8) ^ kTable[(crc ^ static_cast<uint8_t>(c)) & 0xFF];
  return ~crc;
}

uint32_t masked_crc32c(std::string_view bytes) {
  return std::rotr(crc32c(bytes), 15) + 0xA282EAD8;
}

std::string tf_record(std::string_view data) {
  const std::string length = fixed(static_cast<uint64_t>(data.size()));
  return (length + fixed(masked_crc32c(length))).append(data) + fixed(masked_crc32c(data));
}

std::string version_event(double wall_time) {
  return head(wall_time) + bytes_field(kFileVersion, "brain.Event:2");
}

std::string scalars_event(double wall_time, int64_t step, const Scalars& scalars) {
  std::string summary;
  for (const auto& [tag, value] : scalars) {
    summary += bytes_field(kValue, bytes_field(kTag, tag) + static_cast<char>(kSimpleValue) +
                                       fixed(std::bit_cast<uint32_t>(static_cast<float>(value))));
  }
  return head(wall_time, step) + bytes_field(kSummary, summary);
}

std::string restart_event(double wall_time, int64_t step) {
  return head(wall_time, step) +
         bytes_field(kSessionLog, static_cast<char>(kStatus) + varint(kStatusStart));
}

EventFile::EventFile(const fs::path& directory) {
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) throw_error<IoError>("cannot create {}: {}", directory.string(), error.message());
  path_ = new_file(directory);
  out_.open(path_, std::ios::binary);
  write(version_event(now()));
}

void EventFile::add(int64_t step, const Scalars& scalars) {
  write(scalars_event(now(), step, scalars));
}

void EventFile::restart_at(int64_t step) {
  write(restart_event(now(), step));
}

void EventFile::write(const std::string& event) {
  out_ << tf_record(event) << std::flush;
  if (!out_) throw_errno("cannot write " + path_.string());
}

}  // namespace seqfuse::report
