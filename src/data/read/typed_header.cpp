#include "data/read/typed_header.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "base/error.h"
#include "data/read/text_encoding.h"

namespace seqfuse::data {
namespace {

constexpr std::array<std::string_view, 4> kTypes = {"token", "token_seq", "float", "float_seq"};

}  // namespace

TypedHeader::TypedHeader(const std::vector<std::string>& header, const std::string& file)
    : file_(file) {
  for (size_t column = 0; column < header.size(); ++column) {
    const std::string_view text = header[column];
    const size_t colon = text.rfind(':');
    const bool has_type = colon != std::string_view::npos && colon > 0;
    const auto type = std::ranges::find(kTypes, has_type ? text.substr(colon + 1) : "");
    if (type == kTypes.end()) {
      throw_error<DataError>(
          "{}: column {} of the header is '{}'; expected NAME:TYPE, such as item_id:token, with "
          "the type token, token_seq, float or float_seq",
          file, column + 1, excerpt(text));
    }
    names.emplace_back(text.substr(0, colon));
    types.push_back(static_cast<Type>(type - kTypes.begin()));
  }
}

void TypedHeader::check_single_value(int column) const {
  const auto c = static_cast<size_t>(column);
  if (c >= types.size() || types[c] == Type::token || types[c] == Type::number) return;
  throw_error<DataError>("{}: column {} holds lists ({}); expected a column of type token or float",
                         file_, names[c], kTypes[static_cast<size_t>(types[c])]);
}

void TypedHeader::check_id(int column) const {
  const auto c = static_cast<size_t>(column);
  if (c >= types.size() || types[c] == Type::token) return;
  throw_error<DataError>("{}: column {} is {}; expected ids of type token", file_, names[c],
                         kTypes[static_cast<size_t>(types[c])]);
}

}  // namespace seqfuse::data
