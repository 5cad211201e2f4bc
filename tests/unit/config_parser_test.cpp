#include "config/parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <variant>
#include <vector>

#include "base/error.h"
#include "config/literal.h"

namespace seqfuse::config::config_parser_test {
namespace {
using testing::HasSubstr;
using testing::StartsWith;

Value parse_value(const std::string& text) {
  const std::vector<Statement> statements = parse_gin("t.gin", "NAME = " + text);
  EXPECT_EQ(statements.size(), 1U) << text;
  return std::get<Macro>(statements.at(0)).value;
}

template <class T>
T value_as(const std::string& text) {
  const Value value = parse_value(text);
  const T* data = std::get_if<T>(&value.data);
  if (data == nullptr) {
    ADD_FAILURE() << text << " is " << describe(value);
    return T();
  }
  return *data;
}

std::string error_of(const std::string& text) {
  try {
    parse_gin("t.gin", text);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}

TEST(GinLiteral, Numbers) {
  EXPECT_EQ(value_as<int64_t>("0"), 0);
  EXPECT_EQ(value_as<int64_t>("-7"), -7);
  EXPECT_EQ(value_as<int64_t>("+7"), 7);
  EXPECT_EQ(value_as<int64_t>("1_000_000"), 1000000);
  EXPECT_EQ(value_as<int64_t>("0x1F"), 31);
  EXPECT_EQ(value_as<int64_t>("0o17"), 15);
  EXPECT_EQ(value_as<int64_t>("0b101"), 5);
  EXPECT_EQ(value_as<int64_t>("9223372036854775807"), INT64_MAX);
  EXPECT_EQ(value_as<int64_t>("-9223372036854775808"), INT64_MIN);
  EXPECT_EQ(value_as<double>("1e-3"), 1e-3);
  EXPECT_EQ(value_as<double>("1E+3"), 1e3);
  EXPECT_EQ(value_as<double>(".5"), 0.5);
  EXPECT_EQ(value_as<double>("5."), 5.0);
  EXPECT_TRUE(std::signbit(value_as<double>("-0.0")));
}

TEST(GinLiteral, MalformedNumbers) {
  EXPECT_EQ(error_of("A = 9223372036854775808"),
            "t.gin:1:5: the integer 9223372036854775808 does not fit in 64 bits");
  EXPECT_EQ(error_of("A = -9223372036854775809"),
            "t.gin:1:6: the integer 9223372036854775809 does not fit in 64 bits");
  EXPECT_EQ(error_of("A = 99999999999999999999"),
            "t.gin:1:5: 99999999999999999999 is not a number: out of range");
  EXPECT_EQ(error_of("A = 1e999"), "t.gin:1:5: 1e999 is not a number: out of range");
  for (const char* text :
       {"007", "1__0", "1_", "0x", "0xg", "0q1", "1e", "1.2.3", "12ab", "1_.5"}) {
    EXPECT_THAT(error_of(std::string("A = ") + text), StartsWith("t.gin:1:5: " + std::string(text)))
        << text;
  }
}

TEST(GinLiteral, Texts) {
  EXPECT_EQ(value_as<std::string>("'a'"), "a");
  EXPECT_EQ(value_as<std::string>("\"it's\""), "it's");
  EXPECT_EQ(value_as<std::string>("'a' \"b\" 'c'"), "abc");
  EXPECT_EQ(value_as<std::string>("('a'\n 'b')"), "ab");
  EXPECT_EQ(value_as<std::string>(R"('\n\t\\\'\"\x41\u00e9\U0001F600\101')"),
            "\n\t\\'\"A\u00e9\U0001F600A");
  EXPECT_EQ(value_as<std::string>(R"('C:\data')"), R"(C:\data)") << "unknown escapes stay";
  EXPECT_EQ(value_as<std::string>("'a\\\nb'"), "ab");
  EXPECT_EQ(value_as<std::string>("'''a\n'b''c'''"), "a\n'b''c");
  EXPECT_EQ(value_as<std::string>("''"), "");
  EXPECT_EQ(value_as<std::string>("'# no comment'"), "# no comment");
  EXPECT_EQ(value_as<std::string>("'caf\u00e9'"), "caf\u00e9");
}

TEST(GinLiteral, MalformedTexts) {
  EXPECT_EQ(error_of("\nA = 'abc\nB = 1"),
            "t.gin:2:5: the string that starts here has no closing '");
  EXPECT_EQ(error_of("A = '''abc'"), "t.gin:1:5: the string that starts here has no closing '''");
  EXPECT_EQ(error_of("A = 'abc\\"), "t.gin:1:5: the string that starts here has no closing '");
  EXPECT_EQ(error_of(R"(A = 'ab\x4')"), "t.gin:1:8: \\x needs 2 hexadecimal digits");
  EXPECT_EQ(error_of(R"(A = '\uD800')"), "t.gin:1:6: U+D800 is not allowed in a string");
  EXPECT_EQ(error_of(R"(A = '\0')"), "t.gin:1:6: U+0000 is not allowed in a string");
  EXPECT_EQ(error_of("A = r'x'"),
            "t.gin:1:5: strings with a prefix (r') are not supported; write a plain string");
  EXPECT_EQ(error_of(std::string("A = 'a\0b'", 9)), "t.gin:1:7: a string cannot contain NUL");
}

TEST(GinLiteral, EveryLiteralParsesBack) {
  std::string bytes;
  for (char c = 1; c < 127; ++c) bytes += c;
  for (const std::string& text :
       {bytes, std::string("it's \"x\" \\n"), std::string("\u00e9\u4e2d")}) {
    EXPECT_EQ(value_as<std::string>(literal(text)), text);
  }
  for (const double x :
       {0.0, 1.0, -1.0, 0.1, 1e-3, 1e22, 1e-300, 1.7976931348623157e308, 1.0 / 3}) {
    EXPECT_EQ(value_as<double>(literal(x)), x) << literal(x);
  }
  EXPECT_EQ(literal(1.0), "1.0");
  EXPECT_EQ(literal(int64_t{1}), "1");
  EXPECT_EQ(literal(std::vector<std::string>{"a", "b"}), "['a', 'b']");
  EXPECT_EQ(literal(std::optional<int64_t>()), "None");
}

TEST(GinLiteral, Composites) {
  EXPECT_EQ(value_as<List>("[]").items.size(), 0U);
  EXPECT_EQ(value_as<List>("()").items.size(), 0U);
  EXPECT_EQ(value_as<List>("[1, 'a', None,]").items.size(), 3U);
  EXPECT_EQ(value_as<List>("(\"AUC\",)").items.size(), 1U);
  EXPECT_EQ(value_as<std::string>("(\"AUC\")"), "AUC");
  EXPECT_EQ(value_as<List>("[\n    512, 8,  # head\n]").items.size(), 2U);
  const Dict dict = value_as<Dict>("{'a': [1], 'b': {},}");
  ASSERT_EQ(dict.keys.size(), 2U);
  EXPECT_EQ(std::get<std::string>(dict.keys[1].data), "b");
  EXPECT_EQ(value_as<bool>("True"), true);
  EXPECT_EQ(value_as<MacroUse>("%module.WIDTH").name, "module.WIDTH");
  const Reference called = value_as<Reference>("@a/b/module.FeatureArgs()");
  EXPECT_EQ(called.scope, "a/b");
  EXPECT_EQ(called.class_name, "FeatureArgs");
  EXPECT_TRUE(called.called);
  EXPECT_FALSE(value_as<Reference>("@FeatureArgs").called);
}

TEST(GinParser, Bindings) {
  const auto statements = parse_gin("t.gin",
                                    "# comment\n"
                                    "trainer.args.TrainerArgs.seed = \\\n"
                                    "    7  # why\n"
                                    "\n"
                                    "  a/b/m.FeatureArgs.is_jagged=True");
  ASSERT_EQ(statements.size(), 2U);
  const auto& seed = std::get<Binding>(statements[0]);
  EXPECT_EQ(seed.class_name, "TrainerArgs");
  EXPECT_EQ(seed.parameter, "seed");
  EXPECT_EQ(seed.scope, "");
  EXPECT_EQ(seed.class_location.text(), "t.gin:2:14");
  EXPECT_EQ(seed.parameter_location.text(), "t.gin:2:26");
  EXPECT_EQ(seed.value.location.text(), "t.gin:3:5");
  const auto& jagged = std::get<Binding>(statements[1]);
  EXPECT_EQ(jagged.scope, "a/b");
  EXPECT_EQ(jagged.class_name, "FeatureArgs");
  EXPECT_EQ(jagged.class_location.text(), "t.gin:5:9");
}

TEST(GinParser, OtherStatements) {
  const auto statements = parse_gin("t.gin",
                                    "import a.b as c\nfrom a import b\ninclude 'x.gin'\n"
                                    "include 'con' \"figs/\" \\\n  'y.gin'\nsmall/N = 3\n");
  ASSERT_EQ(statements.size(), 5U);
  EXPECT_EQ(std::get<Include>(statements[3]).file, "configs/y.gin");
  EXPECT_EQ(std::get<Macro>(statements[4]).name, "small/N");
  EXPECT_EQ(std::get<Import>(statements[0]).module, "a.b");
  EXPECT_EQ(std::get<Import>(statements[1]).module, "a");
  EXPECT_EQ(std::get<Include>(statements[2]).file, "x.gin");
}

TEST(GinParser, Blocks) {
  const auto statements = parse_gin("t.gin",
                                    "a/m.FeatureArgs:\n"
                                    "    # comment\n"
                                    "\n"
                                    "    feature_names = [\n"
                                    "'item',\n"
                                    "    ]\n"
                                    "    is_jagged = True  # why\n"
                                    "# not indented, and no end of the block\n"
                                    "    max_sequence_length = 5\n"
                                    "TrainerArgs.seed = 1\n"
                                    "  TrainerArgs:\n"
                                    "    log_interval = 2\n"
                                    "  TrainerArgs.profile = False");
  ASSERT_EQ(statements.size(), 6U);
  const std::vector<std::string> names = {"feature_names", "is_jagged", "max_sequence_length"};
  for (size_t i = 0; i < names.size(); ++i) {
    const auto& binding = std::get<Binding>(statements[i]);
    EXPECT_EQ(binding.scope, "a");
    EXPECT_EQ(binding.class_name, "FeatureArgs");
    EXPECT_EQ(binding.parameter, names[i]);
    EXPECT_EQ(binding.class_location.text(), "t.gin:1:5");
  }
  EXPECT_EQ(std::get<Binding>(statements[1]).parameter_location.text(), "t.gin:7:5");
  EXPECT_EQ(std::get<Binding>(statements[3]).parameter, "seed");
  EXPECT_EQ(std::get<Binding>(statements[4]).parameter, "log_interval");
  EXPECT_EQ(std::get<Binding>(statements[5]).parameter, "profile");
}

TEST(GinParser, MalformedBlocks) {
  EXPECT_EQ(error_of("A: b = 1"), "t.gin:1:4: expected a new line after 'A:', got the name b");
  for (const char* empty : {"A:\n", "A:\n\n", "A:\n# comment\n"}) {
    EXPECT_THAT(error_of(empty), HasSubstr("expected indented lines, 'parameter = value', below "
                                           "'A:', got the end of the text"));
  }
  EXPECT_EQ(error_of("A:\nb = 1"),
            "t.gin:2:1: expected indented lines, 'parameter = value', below 'A:', got the name b");
  EXPECT_EQ(error_of("A:\n    b = 1\n  c = 2"),
            "t.gin:3:3: expected the indentation of the first line below 'A:', got the name c");
  EXPECT_EQ(error_of("A:\n  b = 1\n    c = 2"),
            "t.gin:3:5: expected the indentation of the first line below 'A:', got the name c");
  EXPECT_EQ(error_of("m.A:\n  B.c = 1"),
            "t.gin:2:3: expected a parameter of A, got B.c: end the indentation before it");
  EXPECT_EQ(error_of("A:\n  b 1"), "t.gin:2:5: expected '=' after b, got the number 1");
  EXPECT_EQ(error_of("A:\n  b = 1 2"), "t.gin:2:9: expected the end of the line, got the number 2");
}

TEST(GinParser, NewlinesOfEverySystem) {
  const std::string lines = "A = 1\nB = [\n2,\n]\nC = 'x'";
  std::string crlf = "\xEF\xBB\xBF", cr;
  for (const char c : lines) {
    crlf += c == '\n' ? "\r\n" : std::string(1, c);
    cr += c == '\n' ? '\r' : c;
  }
  for (const std::string& text : {lines, crlf, cr, crlf + "\r\n"}) {
    const auto statements = parse_gin("t.gin", text);
    ASSERT_EQ(statements.size(), 3U);
    EXPECT_EQ(std::get<Macro>(statements[2]).value.location.text(), "t.gin:5:5");
  }
  EXPECT_TRUE(parse_gin("t.gin", "").empty());
  EXPECT_TRUE(parse_gin("t.gin", "\xEF\xBB\xBF# only a comment").empty());
}

TEST(GinParser, ErrorsTellThePlace) {
  EXPECT_EQ(error_of("TrainerArgs.seed 5"),
            "t.gin:1:18: expected '=' after TrainerArgs.seed, got the number 5");
  EXPECT_EQ(error_of("TrainerArgs.seed ="),
            "t.gin:1:19: expected a value, got the end of the text");
  EXPECT_EQ(error_of("A =\nB = 2"), "t.gin:1:4: expected a value, got the end of the line");
  EXPECT_EQ(error_of("A = 2 * 3"), "t.gin:1:7: expected the end of the line, got '*'");
  EXPECT_EQ(error_of("A = ml-1m"),
            "t.gin:1:5: expected a value (a string needs quotes), got the name ml");
  EXPECT_EQ(error_of("= 3"),
            "t.gin:1:1: expected Class.parameter = value, NAME = value or include, got '='");
  EXPECT_EQ(error_of("A = [1 2]"),
            "t.gin:1:8: expected ',' or ']' for the '[' of line 1, column 5, got the number 2");
  EXPECT_EQ(
      error_of("\nA = [1,\n 2\n"),
      "t.gin:4:1: expected ',' or ']' for the '[' of line 2, column 5, got the end of the text");
  EXPECT_EQ(error_of("A = {'a' 1}"),
            "t.gin:1:10: expected ':' between a key and its value, got the number 1");
  EXPECT_EQ(error_of("A = @ FeatureArgs"),
            "t.gin:1:7: expected a name right after '@', got the name FeatureArgs");
  EXPECT_EQ(
      error_of("A = @F(1)"),
      "t.gin:1:8: expected ')': parameters are bound, not given as arguments, got the number 1");
  EXPECT_EQ(error_of("a.b/C = 1"), "t.gin:1:1: a scope has no dots, got 'a.b'");
  EXPECT_EQ(error_of("a.b/C.d = 1"), "t.gin:1:1: a scope has no dots, got 'a.b'");
  EXPECT_EQ(error_of("TrainerArgs. = 1"), "t.gin:1:13: expected a name after 'TrainerArgs.'");
  EXPECT_EQ(error_of("A = 'é' 5"), "t.gin:1:9: expected the end of the line, got the number 5")
      << "columns count characters";
  EXPECT_EQ(error_of("A = 1\nB = \xff"),
            "t.gin:2: byte 0xff is not UTF-8 text; expected a gin file");
  EXPECT_THAT(error_of("A = \u00e9"), HasSubstr("t.gin:1:5: unexpected character"));
}

TEST(GinParser, NestingIsLimited) {
  const auto nested = [](size_t depth) {
    return "A = " + std::string(depth, '[') + std::string(depth, ']');
  };
  EXPECT_EQ(error_of(nested(kMaxNesting)), "no error");
  EXPECT_EQ(error_of(nested(kMaxNesting + 2)), "t.gin:1:70: brackets are nested deeper than 64");
  EXPECT_THAT(error_of("A = " + std::string(1000000, '[')), HasSubstr("nested deeper than 64"));
  EXPECT_THAT(error_of("A = " + std::string(1000000, '(')), HasSubstr("nested deeper than 64"));
  EXPECT_THAT(error_of("A = " + std::string(1000000, '-')), HasSubstr("expected a number"));
}

}  // namespace
}  // namespace seqfuse::config::config_parser_test
