#include "data/read/typed_rows.h"

#include "data/read/member_names.h"
#include "data/read/parquet_rows.h"

namespace seqfuse::data {
namespace {

constexpr std::string_view kParquetMark = "PAR1";
static_assert(kParquetMark.size() <= kMarkBytes);

}  // namespace

std::unique_ptr<TypedRows> open_typed_rows(std::string_view name, PeekedStream& stream,
                                           const std::string& location) {
  if (kind_of(name) == FileKind::parquet || stream.head() == kParquetMark) {
    return std::make_unique<ParquetRows>(read_all(stream, location, size_t{1} << 36), location);
  }
  return nullptr;
}

}  // namespace seqfuse::data
