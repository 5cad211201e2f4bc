#include "report/heat_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "report/html.h"

namespace seqfuse::report {
namespace {

constexpr double kCell = 30, kCellWithoutText = 12;
constexpr size_t kMostWithText = 16;  // rows and columns
constexpr double kMapLeft = 46, kMapTop = 62, kMapGap = 26, kMapBottom = 40;
constexpr double kNarrowest = 150;  // of a panel, for its title

struct Color {
  int red, green, blue;
};
constexpr Color kNone{255, 255, 255}, kAll{8, 64, 129}, kMissing{224, 224, 224};

Color color_of(double share) {
  if (!std::isfinite(share)) return kMissing;
  const auto mixed = [&](int from, int to) {
    return static_cast<int>(std::lround(from + (to - from) * std::clamp(share, 0.0, 1.0)));
  };
  return {mixed(kNone.red, kAll.red), mixed(kNone.green, kAll.green), mixed(kNone.blue, kAll.blue)};
}

std::string text(double x, double y, const char* anchor, const std::string& content,
                 const char* more = "") {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\"{}>{}</text>\n", x, y,
                     anchor, more, escape(content));
}

// Numbers of rows or columns: all, or every second, fifth, ...
size_t step_of(size_t count, double cell) {
  for (const size_t step : {1, 2, 5, 10, 20, 50, 100}) {
    if (static_cast<double>(step) * cell >= 22 || step >= count) return step;
  }
  return count;
}

std::string draw_panel(const HeatMap& map, const HeatMapPanel& panel, double left, double cell,
                       bool with_text) {
  std::string svg = text(left, kMapTop - 8, "start", panel.title, " font-weight=\"600\"");
  for (size_t r = 0; r < map.rows; ++r) {
    for (size_t c = 0; c < map.columns; ++c) {
      const double value = panel.values[r * map.columns + c];
      const Color color = color_of(value);
      const double x = left + cell * static_cast<double>(c),
                   y = kMapTop + cell * static_cast<double>(r);
      const std::string shown =
          std::isfinite(value) ? fmt::format("{:.4g} %", 100 * value) : "no value";
      svg += fmt::format(
          "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" "
          "fill=\"#{:02x}{:02x}{:02x}\"><title>{} {}, {} {}: {}</title></rect>\n",
          x, y, cell - 1, cell - 1, color.red, color.green, color.blue, escape(map.row_label), r,
          escape(map.column_label), c, shown);
      if (with_text && std::isfinite(value)) {
        svg += text(
            x + cell / 2, y + cell / 2 + 4, "middle",
            fmt::format("{:.0f}", std::floor(100 * value)),
            value > .5 ? " fill=\"#fff\" pointer-events=\"none\"" : " pointer-events=\"none\"");
      }
    }
  }
  for (size_t c = 0; c < map.columns; c += step_of(map.columns, cell)) {
    svg += text(left + cell * (static_cast<double>(c) + .5),
                kMapTop + cell * static_cast<double>(map.rows) + 14, "middle", std::to_string(c));
  }
  return svg;
}

}  // namespace

std::string to_svg(const HeatMap& map) {
  const bool with_text = std::max(map.rows, map.columns) <= kMostWithText;
  const double cell = with_text ? kCell : kCellWithoutText;
  const double panel_width = std::max(cell * static_cast<double>(map.columns), kNarrowest);
  const double width = kMapLeft + (panel_width + kMapGap) *
                                      static_cast<double>(std::max<size_t>(map.panels.size(), 1));
  const double grid = cell * static_cast<double>(map.rows), height = kMapTop + grid + kMapBottom;
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
      "viewBox=\"0 0 {0:.0f} {1:.0f}\" font-family=\"sans-serif\" font-size=\"12\">\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n",
      width, height);
  svg += text(10, 22, "start", map.title, " font-size=\"15\" font-weight=\"600\"");
  for (size_t r = 0; r < map.rows; r += step_of(map.rows, cell)) {
    svg += text(kMapLeft - 6, kMapTop + cell * (static_cast<double>(r) + .5) + 4, "end",
                std::to_string(r));
  }
  for (size_t p = 0; p < map.panels.size(); ++p) {
    svg += draw_panel(map, map.panels[p],
                      kMapLeft + (panel_width + kMapGap) * static_cast<double>(p), cell, with_text);
  }
  svg += text(kMapLeft, height - 8, "start", map.column_label);
  svg += fmt::format(
      "<text transform=\"translate(14 {:.1f}) rotate(-90)\" text-anchor=\"middle\">{}</text>\n",
      kMapTop + grid / 2, escape(map.row_label));
  return svg + "</svg>\n";
}

}  // namespace seqfuse::report
