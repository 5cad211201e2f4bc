#include "config/parser.h"

#include <fmt/format.h>

#include <cstdint>
#include <optional>
#include <utility>

#include "base/error.h"
#include "config/lexer.h"

namespace seqfuse::config {
namespace {

std::string_view last_component(std::string_view dotted) {
  return dotted.substr(dotted.rfind('.') + 1);  // npos + 1 is 0
}

class Parser {
 public:
  Parser(const std::string& source, std::string_view text) : lexer_(source, text) {
    token_ = lexer_.next();
  }

  std::vector<Statement> parse() {
    std::vector<Statement> statements;
    for (;;) {
      while (token_.kind == TokenKind::newline) take();
      if (token_.kind == TokenKind::end) return statements;
      parse_statement(statements);
    }
  }

 private:
  Token take() { return std::exchange(token_, lexer_.next()); }

  [[noreturn]] void fail(std::string_view expected) const {
    throw_error<UsageError>("{}: {}, got {}", token_.location.text(), expected, token_.describe());
  }

  Token expect(TokenKind kind, std::string_view expected) {
    if (token_.kind != kind) fail(expected);
    return take();
  }

  void end_line() {
    if (token_.kind != TokenKind::newline && token_.kind != TokenKind::end) {
      fail("expected the end of the line");
    }
    while (token_.kind == TokenKind::newline) take();
  }

  std::string parse_text() {
    std::string text;
    while (token_.kind == TokenKind::string) text += take().text;
    return text;
  }

  void parse_statement(std::vector<Statement>& out) {
    const Token name =
        expect(TokenKind::selector, "expected Class.parameter = value, NAME = value or include");
    if (name.text == "include" && token_.kind == TokenKind::string) {
      out.emplace_back(Include{.file = parse_text(), .location = name.location});
    } else if ((name.text == "import" || name.text == "from") &&
               token_.kind == TokenKind::selector) {
      out.emplace_back(Import{.module = token_.text, .location = name.location});
      while (token_.kind == TokenKind::selector) take();  // import a.b as c; from a import b
    } else if (token_.is(':')) {
      return parse_block(name, out);
    } else {
      if (!token_.is('=')) fail("expected '=' after " + name.text);
      take();
      out.push_back(make_assignment(name, parse_value(0)));
    }
    end_line();
  }

  // Class:
  //     parameter = value
  void parse_block(const Token& header, std::vector<Statement>& out) {
    take();
    const Selector selector = split(header);
    if (token_.kind != TokenKind::newline) {
      fail(fmt::format("expected a new line after '{}:'", header.text));
    }
    end_line();
    const int column = token_.location.column, outside = header.location.column;
    if (token_.kind == TokenKind::end || column <= outside) {
      fail(fmt::format("expected indented lines, 'parameter = value', below '{}:'", header.text));
    }
    while (token_.kind != TokenKind::end && token_.location.column > outside) {
      if (token_.location.column != column) {
        fail(fmt::format("expected the indentation of the first line below '{}:'", header.text));
      }
      const Token parameter = expect(TokenKind::selector, "expected parameter = value");
      SEQFUSE_CHECK_AS(UsageError, parameter.text.find_first_of("./") == std::string::npos,
                       "{}: expected a parameter of {}, got {}: end the indentation before it",
                       parameter.location.text(), selector.class_name, parameter.text);
      if (!token_.is('=')) fail("expected '=' after " + parameter.text);
      take();
      out.emplace_back(Binding{.scope = selector.scope,
                               .class_name = selector.class_name,
                               .parameter = parameter.text,
                               .class_location = selector.class_location,
                               .parameter_location = parameter.location,
                               .value = parse_value(0)});
      end_line();
    }
  }

  // [scope/][module.]Class
  struct Selector {
    std::string scope, class_name;
    Location class_location;
  };

  static Selector split(const Token& name) {
    const size_t slash = name.text.rfind('/');
    const size_t start = slash == std::string::npos ? 0 : slash + 1;
    Selector selector{
        .scope = name.text.substr(0, start == 0 ? 0 : slash),
        .class_name = std::string(last_component(std::string_view(name.text).substr(start))),
        .class_location = name.location};
    SEQFUSE_CHECK_AS(UsageError, selector.scope.find('.') == std::string::npos,
                     "{}: a scope has no dots, got '{}'", name.location.text(), selector.scope);
    selector.class_location.column +=
        static_cast<int>(name.text.size() - selector.class_name.size());
    return selector;
  }

  static Statement make_assignment(const Token& name, Value value) {
    const size_t slash = name.text.rfind('/'), dot = name.text.rfind('.');
    if (dot == std::string::npos || (slash != std::string::npos && dot < slash)) {
      SEQFUSE_CHECK_AS(UsageError, dot == std::string::npos, "{}: a scope has no dots, got '{}'",
                       name.location.text(), name.text.substr(0, slash));
      return Macro{.name = name.text, .value = std::move(value)};
    }
    Token path = name;
    path.text.resize(dot);
    Selector selector = split(path);
    Location parameter_location = name.location;
    parameter_location.column += static_cast<int>(dot + 1);
    return Binding{.scope = std::move(selector.scope),
                   .class_name = std::move(selector.class_name),
                   .parameter = name.text.substr(dot + 1),
                   .class_location = selector.class_location,
                   .parameter_location = parameter_location,
                   .value = std::move(value)};
  }

  Value parse_value(int depth) {
    SEQFUSE_CHECK_AS(UsageError, depth <= kMaxNesting, "{}: brackets are nested deeper than {}",
                     token_.location.text(), kMaxNesting);
    Value value{.location = token_.location, .data = {}};
    switch (token_.kind) {
      case TokenKind::selector:
        value.data = parse_constant();
        return value;
      case TokenKind::integer:
      case TokenKind::real:
        value.data = parse_number(false);
        return value;
      case TokenKind::string:
        value.data = parse_text();
        return value;
      case TokenKind::punctuation:
        parse_composite(value, depth);
        return value;
      case TokenKind::end:
      case TokenKind::newline:
        break;
    }
    fail("expected a value");
  }

  decltype(Value::data) parse_constant() {
    if (token_.text == "True" || token_.text == "False") return take().text == "True";
    if (token_.text != "None") fail("expected a value (a string needs quotes)");
    take();
    return std::monostate();
  }

  decltype(Value::data) parse_number(bool negative) {
    const Token number = take();
    if (number.kind == TokenKind::real) return negative ? -number.real : number.real;
    const uint64_t limit = static_cast<uint64_t>(INT64_MAX) + (negative ? 1 : 0);
    SEQFUSE_CHECK_AS(UsageError, number.integer <= limit,
                     "{}: the integer {} does not fit in 64 bits", number.location.text(),
                     number.text);
    return static_cast<int64_t>(negative ? 0 - number.integer : number.integer);
  }

  void parse_composite(Value& value, int depth) {
    const Token open = take();
    switch (open.text[0]) {
      case '-':
      case '+':
        if (token_.kind != TokenKind::integer && token_.kind != TokenKind::real) {
          fail("expected a number after '" + open.text + "'");
        }
        value.data = parse_number(open.is('-'));
        return;
      case '[':
        value.data = List{parse_items(open, ']', depth).items};
        return;
      case '(': {
        Items items = parse_items(open, ')', depth);
        if (items.items.size() == 1 && !items.trailing_comma) {
          value = std::move(items.items[0]);  // (v) is v, (v,) is a list
        } else {
          value.data = List{std::move(items.items)};
        }
        return;
      }
      case '{':
        value.data = parse_dict(open, depth);
        return;
      case '%':
        value.data = MacroUse{adjacent_selector(open)};
        return;
      case '@':
        value.data = parse_reference(open);
        return;
      default:
        throw_error<UsageError>("{}: expected a value, got {}", open.location.text(),
                                open.describe());
    }
  }

  struct Items {
    std::vector<Value> items;
    bool trailing_comma = false;
  };

  Items parse_items(const Token& open, char close, int depth) {
    Items list;
    while (!token_.is(close)) {
      list.items.push_back(parse_value(depth + 1));
      list.trailing_comma = token_.is(',');
      take_separator(open, close);
    }
    take();
    return list;
  }

  Dict parse_dict(const Token& open, int depth) {
    Dict dict;
    while (!token_.is('}')) {
      dict.keys.push_back(parse_value(depth + 1));
      if (!token_.is(':')) fail("expected ':' between a key and its value");
      take();
      dict.values.push_back(parse_value(depth + 1));
      take_separator(open, '}');
    }
    take();
    return dict;
  }

  void take_separator(const Token& open, char close) {
    if (token_.is(',')) {
      take();
    } else if (!token_.is(close)) {
      fail(fmt::format("expected ',' or '{}' for the '{}' of line {}, column {}", close, open.text,
                       open.location.line, open.location.column));
    }
  }

  std::string adjacent_selector(const Token& sign) {
    if (token_.kind != TokenKind::selector || !token_.adjacent) {
      fail(fmt::format("expected a name right after '{}'", sign.text));
    }
    return take().text;
  }

  Reference parse_reference(const Token& sign) {
    const std::string selector = adjacent_selector(sign);
    Reference reference;
    const size_t slash = selector.rfind('/');
    if (slash != std::string::npos) reference.scope = selector.substr(0, slash);
    reference.class_name = last_component(
        std::string_view(selector).substr(slash == std::string::npos ? 0 : slash + 1));
    if (token_.is('(') && token_.adjacent) {
      take();
      if (!token_.is(')')) fail("expected ')': parameters are bound, not given as arguments");
      take();
      reference.called = true;
    }
    return reference;
  }

  Lexer lexer_;
  Token token_;
};

}  // namespace

std::vector<Statement> parse_gin(const std::string& source, std::string_view text) {
  return Parser(source, text).parse();
}

}  // namespace seqfuse::config
