// Charts as SVG inside an HTML figure. Colours are the page's classes c0 .. c5. With JavaScript,
// hovering over a chart shows values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace seqfuse::report {

struct Point {
  double x = 0, y = 0;
  int64_t epoch = 0;  // shown next to the value; 0: none
};

struct Series {
  std::string name;
  std::vector<Point> points;  // ascending x; a non-finite y interrupts the line
  int color = 0;              // the same number for the same run in every chart
};

// A horizontal line to compare with.
struct Reference {
  std::string name;
  double y = 0;
};

struct LineChart {
  std::string title, x_label;
  std::vector<Series> series;
  std::vector<Reference> references;
  bool logarithmic = false;  // both axes; points must be above 0
};

// Dots whose two coordinates are the same quantity. Both axes span the same range, with a line where y = x,
// and are logarithmic if it is wide.
struct Dot {
  double x = 0, y = 0;      // above 0; others are left out
  std::string explanation;  // a tooltip
};

struct DotSeries {
  std::string name;
  std::vector<Dot> dots;
  int color = 0;
};

struct ScatterChart {
  std::string title, x_label, diagonal;  // diagonal: what the line is, in the legend
  std::vector<DotSeries> series;
};

struct Bar {
  std::string label, explanation;  // the explanation is a tooltip
  double value = 0;
};

struct BarChart {
  std::string title, x_label;
  std::vector<Bar> bars;
  bool counts = true;  // values are whole numbers
};

// Escapes all texts. A chart without finite points says so.
std::string to_html(const LineChart& chart);
std::string to_html(const BarChart& chart);
std::string to_html(const ScatterChart& chart);

// Reduces to about max_points points with the same outline: keeps the lowest and the highest point
// of each segment, and the first and the last point.
std::vector<Point> thin_out(const std::vector<Point>& points, size_t max_points);

}  // namespace seqfuse::report
