#include "data/read/member_names.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "base/error.h"
#include "data/read/field_values.h"
#include "data/read/text_encoding.h"

namespace seqfuse::data {
namespace {

constexpr std::string_view kBlankPartition = "__HIVE_DEFAULT_PARTITION__";

constexpr std::array<std::string_view, 8> kOtherData = {".orc",  ".avro", ".arrow", ".feather",
                                                        ".xlsx", ".xls",  ".npy",   ".npz"};
constexpr std::array<std::string_view, 22> kDocuments = {
    ".md",    ".rst", ".html", ".htm", ".pdf", ".json", ".yaml", ".yml", ".xml", ".toml", ".py",
    ".ipynb", ".r",   ".sql",  ".sh",  ".png", ".jpg",  ".jpeg", ".gif", ".svg", ".doc",  ".docx"};

// Base names of documents, with any ending.
constexpr std::array<std::string_view, 4> kDocumentNames = {"readme", "license", "licence",
                                                            "changelog"};

// Removes the first component of path and returns it.
std::string_view take_component(std::string_view& path) {
  const size_t slash = std::min(path.find('/'), path.size());
  const std::string_view component = path.substr(0, slash);
  path.remove_prefix(std::min(path.size(), slash + 1));
  return component;
}

bool ends_with_ignoring_case(std::string_view name, std::string_view ending) {
  return name.size() >= ending.size() &&
         equal_ignoring_case(name.substr(name.size() - ending.size()), ending);
}

std::string decode_percent(std::string_view text) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    unsigned char byte = 0;
    const char* hex = text.data() + i + 1;
    if (text[i] == '%' && text.size() - i > 2 &&
        std::from_chars(hex, hex + 2, byte, 16).ptr == hex + 2) {
      result += static_cast<char>(byte);
      i += 2;
    } else {
      result += text[i];
    }
  }
  return result;
}

}  // namespace

bool is_hidden(std::string_view path) {
  while (!path.empty()) {
    const std::string_view component = take_component(path);
    if (component == "." || component == "..") continue;
    if (component.starts_with('.') || component.starts_with('_')) return true;
  }
  return false;
}

FileKind kind_of(std::string_view name) {
  const auto ends = [&](std::string_view ending) { return ends_with_ignoring_case(name, ending); };
  if (ends(".tsv")) return FileKind::tabs;
  if (ends(".parquet")) return FileKind::parquet;
  if (ends(".jsonl") || ends(".ndjson")) return FileKind::json_lines;
  const std::string_view base = name.substr(name.rfind('/') + 1);
  const auto is_stem = [&](std::string_view stem) {
    return equal_ignoring_case(base.substr(0, base.find('.')), stem);
  };
  if (std::ranges::any_of(kDocumentNames, is_stem)) return FileKind::document;
  if (std::ranges::any_of(kOtherData, ends)) return FileKind::other_data;
  if (std::ranges::any_of(kDocuments, ends)) return FileKind::document;
  return FileKind::text;
}

std::vector<std::pair<std::string, std::string>> partitions_of(std::string_view path) {
  std::vector<std::pair<std::string, std::string>> partitions;
  for (std::string_view rest = path; !rest.empty();) {
    const std::string_view component = take_component(rest);
    const size_t equals = component.find('=');
    if (rest.empty() || equals == std::string_view::npos || equals == 0) continue;
    std::string value = decode_percent(component.substr(equals + 1));
    if (value == kBlankPartition) value.clear();
    partitions.emplace_back(decode_percent(component.substr(0, equals)), std::move(value));
    for (const std::string& text : {partitions.back().first, partitions.back().second}) {
      if (!is_valid_utf8(text)) {
        throw_error<DataError>("the folder {} names a column or value that is not UTF-8",
                               excerpt(component));
      }
    }
  }
  return partitions;
}

}  // namespace seqfuse::data
