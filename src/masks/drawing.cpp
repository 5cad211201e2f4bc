#include "masks/drawing.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <iterator>

#include "base/error.h"

namespace seqfuse::masks {
namespace {

constexpr int64_t kMostDetailed = 4096;  // tokens
constexpr double kSide = 640;            // pixels of the longer side

// A path of rectangles, each in units of tokens.
class Rectangles {
 public:
  void add(int64_t x, int64_t y, int64_t width, int64_t height) {
    fmt::format_to(std::back_inserter(path_), "M{} {}h{}v{}h-{}z", x, y, width, height, width);
  }
  void draw(std::string& svg, const char* colour) const {
    if (!path_.empty())
      fmt::format_to(std::back_inserter(svg), "<path fill=\"{}\" d=\"{}\"/>\n", colour, path_);
  }

 private:
  std::string path_;
};

// The allowed elements of a bitmap, as runs of keys; equal neighbouring rows share rectangles.
void add_elements(const uint64_t* words, int64_t x, int64_t y, Rectangles& to) {
  for (int64_t q = 0; q < kBlock;) {
    int64_t same = 1;
    while (q + same < kBlock && words[q + same] == words[q]) ++same;
    uint64_t left = words[q];
    for (int64_t k = 0; left != 0;) {
      const int skip = std::countr_zero(left);
      left >>= skip;
      k += skip;
      const int run = std::countr_one(left);
      to.add(x + k, y + q, run, same);
      k += run;
      left = run == kBlock ? 0 : left >> run;
    }
    q += same;
  }
}

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '<') {
      result += "&lt;";
    } else if (c == '&') {
      result += "&amp;";
    } else {
      result += c;
    }
  }
  return result;
}

}  // namespace

std::string draw_svg(const BlockMask& mask, int64_t sequence, const std::string& caption) {
  const BlockMaskView view = mask.view();
  SEQFUSE_CHECK(view.step == 1, "drawing a mask in blocks of every {}th token; expected step 1",
                view.step);
  const bool detailed = std::max(mask.queries, mask.keys) <= kMostDetailed;
  Rectangles full, partial, elements;
  for (int64_t i = 0; i < view.query_blocks; ++i) {
    const int64_t r = sequence * view.query_blocks + i, y = i * kBlock;
    const int64_t height = std::min<int64_t>(mask.queries - y, kBlock);
    for (int32_t e = view.row_begin[r]; e < view.row_begin[r + 1]; ++e) {
      const int64_t x = int64_t{view.column[e]} * kBlock;
      const int64_t width = std::min<int64_t>(mask.keys - x, kBlock);
      if (view.bitmap[e] < 0) {
        full.add(x, y, width, height);
      } else {
        partial.add(x, y, width, height);
        if (detailed) add_elements(view.bits + int64_t{view.bitmap[e]} * kBlock, x, y, elements);
      }
    }
  }
  const double longest = static_cast<double>(std::max<int64_t>({mask.queries, mask.keys, 1}));
  const double scale = kSide / longest;
  const double width = static_cast<double>(mask.keys) * scale;
  const double height = static_cast<double>(mask.queries) * scale;
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{:.0f}\" height=\"{:.0f}\" "
      "font-family=\"sans-serif\" font-size=\"13\">\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n<g transform=\"translate(20 34)\">\n"
      "<g transform=\"scale({:.6g})\" shape-rendering=\"crispEdges\">\n",
      kSide + 40, height + 80, scale);
  full.draw(svg, "#1f4e79");
  partial.draw(svg, detailed ? "#fde3c8" : "#e08a3c");
  elements.draw(svg, "#e08a3c");
  fmt::format_to(std::back_inserter(svg),
                 "</g>\n<rect width=\"{:.2f}\" height=\"{:.2f}\" fill=\"none\" stroke=\"#444\"/>\n"
                 "<text y=\"-10\">{} keys &#8594;, {} queries &#8595;; dark: full blocks of {}, "
                 "light: partial ones</text>\n<text y=\"{:.2f}\">{}</text>\n</g>\n</svg>\n",
                 width, height, mask.keys, mask.queries, kBlock, height + 24, escaped(caption));
  return svg;
}

}  // namespace seqfuse::masks
