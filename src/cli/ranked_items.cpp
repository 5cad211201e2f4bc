#include "cli/ranked_items.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

namespace seqfuse::cli {
namespace {

size_t score_width(const std::string& name) {
  return std::max<size_t>(name.size(), 6);
}

}  // namespace

void print_ranked_items(const data::Vocabulary& vocabulary,
                        const std::vector<serving::RankedItem>& rows,
                        const std::vector<std::string>& scores) {
  size_t id_width = 4;
  for (const auto& row : rows) id_width = std::max(id_width, vocabulary.item_id(row.item).size());
  fmt::print("rank  {:>{}}", "item", id_width);
  for (const std::string& name : scores) fmt::print("  {:>{}}", name, score_width(name));
  fmt::print("  title\n");
  for (size_t i = 0; i < rows.size(); ++i) {
    fmt::print("{:>4}  {:>{}}", i + 1, vocabulary.item_id(rows[i].item), id_width);
    for (const auto& [name, value] : rows[i].scores) {
      fmt::print("  {:>{}.4f}", value, score_width(name));
    }
    fmt::print("  {}\n", vocabulary.item_title(rows[i].item));
  }
}

nlohmann::json ranked_items_json(const data::Vocabulary& vocabulary,
                                 const std::vector<serving::RankedItem>& rows) {
  nlohmann::json items = nlohmann::json::array();
  for (const auto& row : rows) {
    nlohmann::json entry = {{"item", vocabulary.item_id(row.item)}};
    const std::string title = vocabulary.item_title(row.item);
    if (!title.empty()) entry["title"] = title;
    for (const auto& [name, value] : row.scores) entry[name] = value;
    items.push_back(std::move(entry));
  }
  return items;
}

}  // namespace seqfuse::cli
