#include "training/evaluation/metrics_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

namespace seqfuse::training {
namespace {

constexpr size_t kMaxWidth = 100;  // a wider table is transposed: one row per metric

using metrics::is_better;
using metrics::value_of;
using Cells = std::vector<std::vector<std::string>>;

std::vector<size_t> column_widths(const Cells& cells) {
  std::vector<size_t> widths(cells.front().size());
  for (const auto& row : cells) {
    for (size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
  }
  return widths;
}

size_t total_width(const std::vector<size_t>& widths) {
  size_t total = 0;
  for (const size_t width : widths) total += width + 2;
  return total;
}

Cells transposed(const Cells& cells) {
  Cells result(cells.front().size(), std::vector<std::string>(cells.size()));
  for (size_t r = 0; r < cells.size(); ++r) {
    for (size_t c = 0; c < cells[r].size(); ++c) result[c][r] = cells[r][c];
  }
  return result;
}

}  // namespace

std::string format_metrics_table(const metrics::NamedMetrics& rows) {
  if (rows.empty()) return "";
  Cells cells(rows.size() + 1);
  cells[0].emplace_back("");
  for (size_t r = 0; r < rows.size(); ++r) cells[r + 1].push_back(rows[r].first);
  for (const auto& [name, ignored] : rows.front().second) {
    double best = std::numeric_limits<double>::quiet_NaN();
    for (const auto& [model, metrics] : rows) {
      const double value = value_of(metrics, name);
      if (is_better(name, value, best)) best = value;
    }
    cells[0].push_back(name + " ");
    for (size_t r = 0; r < rows.size(); ++r) {
      const double value = value_of(rows[r].second, name);
      const char mark = rows.size() > 1 && value == best ? '*' : ' ';
      cells[r + 1].push_back(std::isnan(value) ? "- " : fmt::format("{:.4f}{}", value, mark));
    }
  }
  if (total_width(column_widths(cells)) > kMaxWidth) cells = transposed(cells);
  const std::vector<size_t> widths = column_widths(cells);
  std::string table;
  for (const auto& row : cells) {
    std::string line = fmt::format("{:<{}}", row[0], widths[0]);
    for (size_t c = 1; c < row.size(); ++c) line += fmt::format("  {:>{}}", row[c], widths[c]);
    line.erase(line.find_last_not_of(' ') + 1);
    table += line + "\n";
  }
  if (rows.size() > 1) table += "* best\n";
  return table;
}

}  // namespace seqfuse::training
