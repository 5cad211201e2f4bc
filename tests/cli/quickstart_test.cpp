// The commands of docs/quickstart.md, taken from the document and run as they stand there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "data/read/csv.h"
#include "tests/cli/seqfuse_process.h"

namespace seqfuse::quickstart_test {
namespace {
namespace fs = std::filesystem;
using testing::Each;
using testing::HasSubstr;
using testing::SizeIs;
using testing::StartsWith;

constexpr std::string_view kFence = "```\n";

// The code blocks of a section of the document, without their fences.
std::vector<std::string> blocks(std::string_view heading) {
  const std::string text = read_file(test::source_directory() + "/docs/quickstart.md");
  const std::string start = "\n## " + std::string(heading) + "\n";
  const size_t begin = text.find(start);
  if (begin == std::string::npos) return {};
  std::string_view section = std::string_view(text).substr(begin + start.size());
  section = section.substr(0, section.find("\n## "));
  std::vector<std::string> found;
  for (size_t at = section.find(kFence); at != std::string_view::npos; at = section.find(kFence)) {
    section.remove_prefix(at + kFence.size());
    const size_t end = std::min(section.find(kFence), section.size());
    found.emplace_back(section.substr(0, end));
    section.remove_prefix(std::min(end + kFence.size(), section.size()));
  }
  return found;
}

// One command a line; a backslash continues it.
std::vector<std::string> commands(const std::string& block) {
  std::vector<std::string> found = {""};
  std::istringstream lines(block);
  for (std::string line; std::getline(lines, line);) {
    found.back() += line + "\n";
    if (!line.ends_with('\\')) found.emplace_back();
  }
  found.pop_back();
  return found;
}

using Row = std::vector<std::string>;

std::vector<Row> rows_of(const std::string& file) {
  const std::string text = read_file(file);
  data::RowSplitter splitter(text, {});
  std::vector<Row> rows;
  while (splitter.next()) rows.emplace_back(splitter.fields().begin(), splitter.fields().end());
  return rows;
}

TEST(Quickstart, FromAShopsLogToRecommendationsInFiveCommands) {
  // A checkout as far as the commands read it, and `seqfuse` on the PATH.
  const TemporaryDirectory checkout;
  for (const char* folder : {"configs", "examples"}) {
    fs::create_directory_symlink(test::source_directory() + "/" + folder, checkout.path() / folder);
  }
  const std::string before = "cd " + checkout.path().string() +
                             " && PATH=" + fs::path(test::binary()).parent_path().string() +
                             ":$PATH && ";
  const std::vector<std::string> shown = blocks("From a shop's CSV to recommendations");
  ASSERT_THAT(shown, SizeIs(3)) << "the commands, what the first prints, recommendations";
  const std::vector<std::string> five = commands(shown[0]);
  ASSERT_THAT(five, SizeIs(5));
  EXPECT_THAT(five, Each(StartsWith("seqfuse ")));
  std::vector<std::string> printed;
  for (const std::string& command : five) {
    const Outcome outcome = run_in_shell(before + command);
    ASSERT_EQ(outcome.code, 0) << command << outcome.text();
    printed.push_back(outcome.out);
  }
  EXPECT_EQ(printed[0], shown[1]);
  EXPECT_THAT(printed[1], HasSubstr("csv: 150 users, 48 items, 1418 events"));

  std::map<std::string, std::set<std::string>> bought;
  for (const Row& order : rows_of((checkout.path() / "examples/shop/orders.csv").string())) {
    bought[order[1]].insert(order[2]);
  }
  std::vector<Row> rows = rows_of((checkout.path() / "runs/shop.csv").string());
  EXPECT_EQ(rows.at(0), (Row{"user", "rank", "item", "score", "title"}));
  EXPECT_THAT(shown[2], StartsWith("user,rank,item,score,title\nC-1001,1,"));
  rows.erase(rows.begin());
  EXPECT_EQ(rows.size(), 150U * 5);
  for (const Row& row : rows) {
    EXPECT_FALSE(bought.at(row[0]).contains(row[2])) << row[0] << " has " << row[2];
    EXPECT_NE(row[4], "") << "a title";
  }
}

}  // namespace
}  // namespace seqfuse::quickstart_test
