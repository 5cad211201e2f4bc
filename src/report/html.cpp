#include "report/html.h"

#include <fmt/format.h>

#include "report/page_assets.h"

namespace seqfuse::report {

std::string escape(std::string_view text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '"':
        result += "&quot;";
        break;
      case '\'':
        result += "&#39;";
        break;
      default:
        result += c;
    }
  }
  return result;
}

std::string table(const std::vector<Row>& rows) {
  std::string text = "<div class=\"scroll\"><table>\n";
  for (size_t r = 0; r < rows.size(); ++r) {
    text += "<tr>";
    for (size_t c = 0; c < rows[r].size(); ++c) {
      const Cell& cell = rows[r][c];
      const char* tag = r == 0 || c == 0 ? "th" : "td";
      text += cell.css_class.empty()
                  ? fmt::format("<{0}>{1}</{0}>", tag, cell.html)
                  : fmt::format("<{0} class=\"{2}\">{1}</{0}>", tag, cell.html, cell.css_class);
    }
    text += "</tr>\n";
  }
  return text + "</table></div>\n";
}

std::string section(std::string_view title, const std::string& content) {
  return fmt::format("<section><h2>{}</h2>\n{}</section>\n", title, content);
}

std::string charts(const std::string& content) {
  return "<div class=\"charts\">\n" + content + "</div>\n";
}

std::string document(std::string_view title, const std::string& header, const std::string& main,
                     std::string_view version) {
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<title>{}</title>\n<style>{}</style>\n</head>\n<body>\n<header>{}</header>\n<main>\n{}"
      "</main>\n<footer><p class=\"note\">seqfuse {}</p></footer>\n"
      "<script>{}</script>\n</body>\n</html>\n",
      escape(title), kStyle, header, main, escape(version), kScript);
}

}  // namespace seqfuse::report
