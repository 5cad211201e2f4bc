// Heat maps: tables of shares from 0 to 1 as colours, one beside the other, as a stand-alone SVG image.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace seqfuse::report {

struct HeatMapPanel {
  std::string title;
  std::vector<double> values;  // [rows, columns]; not finite: drawn as missing
};

struct HeatMap {
  std::string title, row_label, column_label;
  size_t rows = 0, columns = 0;  // 1 or more
  std::vector<HeatMapPanel> panels;
};

// Rows downwards, both numbered from 0. White is 0, dark blue 1; each cell has a tooltip, and its value
// in % if there is room. Escapes all texts.
std::string to_svg(const HeatMap& map);

}  // namespace seqfuse::report
