// Any text either is refused with a DataError or is a manifest that writes back to the same fields.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "data/dataset/manifest.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace seqfuse::data;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const ManifestFile manifest = manifest_from_json(text, "manifest.json");
    const std::string json = manifest_to_json(manifest);
    if (manifest_to_json(manifest_from_json(json, "again.json")) != json) std::abort();
  } catch (const seqfuse::DataError&) {
  }
  return 0;
}
