// TensorBoard event files, written without TensorFlow: records of one protobuf message each.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace seqfuse::report {

// CRC-32C (Castagnoli), and its masked form in TFRecord files.
uint32_t crc32c(std::string_view bytes);
uint32_t masked_crc32c(std::string_view bytes);

// The TFRecord framing: length, its checksum, the data, their checksum; little-endian.
std::string tf_record(std::string_view data);

using Scalars = std::vector<std::pair<std::string, double>>;  // tag, value

// Serialised Event messages. wall_time: seconds since 1970.
std::string version_event(double wall_time);
std::string scalars_event(double wall_time, int64_t step, const Scalars& scalars);
// Tells readers to drop points from this step on in earlier files of the folder.
std::string restart_event(double wall_time, int64_t step);

// DIRECTORY/events.out.tfevents.<unix seconds>.<host>. Flushes after each add(), so that
// TensorBoard can follow a running training.
class EventFile {
 public:
  // Creates the directory and a new file. Throws IoError.
  explicit EventFile(const std::filesystem::path& directory);

  // Both throw IoError.
  void add(int64_t step, const Scalars& scalars);
  void restart_at(int64_t step);

 private:
  void write(const std::string& event);

  std::filesystem::path path_;
  std::ofstream out_;
};

}  // namespace seqfuse::report
