// HTML: escaping, tables, sections, whole documents.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace seqfuse::report {

// Escapes text for element content and for attribute values in double or single quotes.
std::string escape(std::string_view text);

struct Cell {
  std::string html, css_class;
};
using Row = std::vector<Cell>;

// The first row and the first column are headings.
std::string table(const std::vector<Row>& rows);

// title: HTML.
std::string section(std::string_view title, const std::string& content);

// Charts (chart.h) side by side, as many as fit.
std::string charts(const std::string& content);

// A self-contained page with the style and the script of page_assets.h. title: text. header, main: HTML;
// version: of seqfuse.
std::string document(std::string_view title, const std::string& header, const std::string& main,
                     std::string_view version);

}  // namespace seqfuse::report
