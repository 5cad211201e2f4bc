// Any bytes either are refused with a DataError or yield a header that round-trips.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "io/safetensors_header.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace seqfuse::io;
  const std::string_view file(reinterpret_cast<const char*>(data), size);
  try {
    const uint64_t length = safetensors_json_length(file, size, "fuzz");
    const uint64_t data_size = size - kSafetensorsLengthBytes - length;
    const SafetensorsHeader header =
        parse_safetensors_header(file.substr(kSafetensorsLengthBytes, length), data_size, "fuzz");
    const std::string again = format_safetensors_header(header);
    const SafetensorsHeader parsed = parse_safetensors_header(
        std::string_view(again).substr(kSafetensorsLengthBytes), data_size, "again");
    if (format_safetensors_header(parsed) != again) std::abort();
  } catch (const seqfuse::DataError&) {
  }
  return 0;
}
