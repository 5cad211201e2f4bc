// seqfuse export and seqfuse similar: the vectors give the scores of recommend; what is refused.
#include <arrow/api.h>
#include <arrow/io/file.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <parquet/arrow/reader.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/file.h"
#include "tests/cli/trained_runs.h"

namespace seqfuse::export_test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

// By raw id.
using Vectors = std::map<std::string, std::vector<float>>;

json json_of(const std::string& arguments) {
  const Outcome outcome = run_seqfuse(arguments);
  EXPECT_EQ(outcome.code, 0) << arguments << "\n" << outcome.err;
  return json::parse(outcome.out, nullptr, /*allow_exceptions=*/false);
}

double dot(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += static_cast<double>(a[i]) * b[i];
  return sum;
}

class Export : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return (directory_.path() / name).string(); }

  void must_export(const std::string& arguments) const {
    const Outcome outcome = run_seqfuse("export " + arguments);
    ASSERT_EQ(outcome.code, 0) << outcome.text();
  }

  // what: "items" or "users".
  Vectors npy(const std::string& run, const std::string& what) const {
    const std::string file = path(what + ".npy");
    must_export(run + " --" + what + " --output " + file);
    const json about = json::parse(read_file(file + ".json"));
    const std::string bytes = read_file(file);
    EXPECT_EQ(bytes.substr(0, 8), std::string("\x93NUMPY\x01\x00", 8));
    const size_t begin = 10 + static_cast<unsigned char>(bytes[8]) +
                         256 * static_cast<size_t>(static_cast<unsigned char>(bytes[9]));
    EXPECT_EQ(begin % 64, 0U);
    EXPECT_THAT(bytes.substr(10, begin - 10),
                HasSubstr(fmt::format("'shape': ({}, 16)", about["count"].get<int64_t>())));
    EXPECT_EQ(bytes.size() - begin, about["count"].get<size_t>() * 16 * sizeof(float));
    EXPECT_EQ(about["vectors"], what);
    EXPECT_EQ(about["normalized"], "l2");
    EXPECT_EQ(about["step"], 6);
    Vectors vectors;
    for (const std::string id : about["ids"]) {
      std::vector<float>& values = vectors[id];
      values.resize(16);
      std::memcpy(values.data(), bytes.data() + begin + (vectors.size() - 1) * 64, 64);
    }
    return vectors;
  }

  TemporaryDirectory directory_;
};

// std::map sorts by text, and so does the vocabulary: "item10" before "item2", as no id is a number.
TEST_F(Export, DotProductsAreTheScoresOfRecommend) {
  for (const std::string& run : {TrainedRuns::get().retrieval(), TrainedRuns::get().research()}) {
    const Vectors items = npy(run, "items"), users = npy(run, "users");
    EXPECT_EQ(items.size(), 15U);
    EXPECT_EQ(users.size(), 40U);
    for (const auto& [id, vector] : items) EXPECT_NEAR(dot(vector, vector), 1, 1e-5) << id;
    for (const std::string user : {"u0", "u7", "u39"}) {
      const json answer =
          json_of("recommend " + run + " --json --include-seen --top-k 15 --user " + user);
      ASSERT_EQ(answer["items"].size(), 15U);
      for (const json& entry : answer["items"]) {
        EXPECT_NEAR(dot(users.at(user), items.at(entry["item"])), entry["score"].get<double>(),
                    1e-6);
      }
    }
  }
}

TEST_F(Export, ParquetHoldsTheSameAndSaysWhatItIs) {
  const std::string run = TrainedRuns::get().research(), file = path("items.parquet");
  must_export(run + " --items --output " + file);
  const auto reader =
      *parquet::arrow::OpenFile(*arrow::io::ReadableFile::Open(file), arrow::default_memory_pool());
  const auto read = reader->ReadTable();
  ASSERT_TRUE(read.ok()) << read.status();
  const std::shared_ptr<arrow::Table> table = *read;
  EXPECT_EQ(table->ColumnNames(), (std::vector<std::string>{"id", "vector"}));
  ASSERT_EQ(table->num_rows(), 15);
  const json about = json::parse(*table->schema()->metadata()->Get("seqfuse"));
  EXPECT_EQ(about["vectors"], "items");
  EXPECT_EQ(about["normalized"], "l2");
  EXPECT_EQ(about["metric"], "inner product");
  EXPECT_EQ(about["width"], 16);
  const auto vectors =
      std::dynamic_pointer_cast<arrow::FixedSizeListArray>(table->column(1)->chunk(0));
  ASSERT_TRUE(vectors) << table->column(1)->type()->ToString();
  const auto ids = std::dynamic_pointer_cast<arrow::StringArray>(table->column(0)->chunk(0));
  const auto values = std::dynamic_pointer_cast<arrow::FloatArray>(vectors->values());
  Vectors found;
  for (int64_t row = 0; row < 15; ++row) {
    const float* begin = values->raw_values() + row * 16;
    found[ids->GetString(row)] = {begin, begin + 16};
  }
  EXPECT_EQ(found, npy(run, "items"));
}

TEST_F(Export, SimilarItemsAreTheLargestDotProducts) {
  const std::string run = TrainedRuns::get().research();
  const Vectors items = npy(run, "items");
  std::vector<std::pair<double, std::string>> expected;
  for (const auto& [id, vector] : items) {
    if (id != "item3") expected.emplace_back(-dot(items.at("item3"), vector), id);
  }
  std::sort(expected.begin(), expected.end());
  const json answer = json_of("similar " + run + " --item item3 --top-k 20 --json");
  EXPECT_EQ(answer["item"], "item3");
  ASSERT_EQ(answer["items"].size(), 14U);  // all but itself
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(answer["items"][i]["item"], expected[i].second);
    EXPECT_NEAR(answer["items"][i]["cosine"].get<double>(), -expected[i].first, 1e-6);
  }
  const Outcome table = run_seqfuse("similar " + run + " --item item3 --top-k 2");
  EXPECT_EQ(table.code, 0) << table.err;
  EXPECT_EQ(std::ranges::count(table.out, '\n'), 3) << table.out;
  EXPECT_THAT(table.out, HasSubstr(expected[1].second));
}

TEST_F(Export, ItemsAndSimilarNeedTheRunAlone) {
  const std::string run = path("moved");
  std::filesystem::copy(TrainedRuns::get().research(), run,
                        std::filesystem::copy_options::recursive);
  std::string description = read_file(run + "/run.json");
  const std::string data = TrainedRuns::get().data();
  description.replace(description.find(data), data.size(), "/gone");
  write_file_atomically(run + "/run.json", description);
  must_export(run + " --items --output " + path("items.npy"));
  EXPECT_EQ(json_of("similar " + run + " --item item3 --json")["items"].size(), 10U);
  const Outcome users = run_seqfuse("export " + run + " --users --output " + path("users.npy"));
  EXPECT_EQ(users.code, 1);
  EXPECT_THAT(users.err, HasSubstr("--items does without"));
  must_export(run + " --users --data " + data + " --output " + path("users.npy"));
}

TEST_F(Export, WrongRequestsAreRefusedAndWriteNothing) {
  const std::string run = TrainedRuns::get().research();
  const auto expect_refused = [&](const std::string& arguments, int code,
                                  const std::string& message) {
    const Outcome outcome = run_seqfuse(arguments);
    EXPECT_EQ(outcome.code, code) << arguments;
    EXPECT_THAT(outcome.err, HasSubstr(message)) << arguments;
  };
  const std::string output = " --output " + path("x.npy");
  expect_refused("export " + run + output, 2, "--items");
  expect_refused("export " + run + " --items --users" + output, 2, "--users");
  expect_refused("export " + run + " --items", 2, "--output");
  expect_refused("export " + run + " --items --output " + path("x.csv"), 2,
                 "its name must end in .parquet or .npy");
  expect_refused("export " + TrainedRuns::get().ranking() + " --items" + output, 2,
                 "is a ranking run: it scores an item together with a history");
  expect_refused("similar " + TrainedRuns::get().ranking() + " --item item3", 2,
                 "is a ranking run");
  expect_refused("similar " + run + " --item nothing", 2,
                 "item 'nothing' is not among the 15 items");
  for (const std::string ending : {".npy", ".parquet"}) {
    expect_refused("export " + run + " --items --output " + path("none/x") + ending, 1,
                   "No such file or directory");
    const Outcome outcome =
        run_seqfuse("export " + run + " --items --output " + path("none/x") + ending);
    EXPECT_THAT(outcome.err, HasSubstr(path("none/x") + ending));
    EXPECT_THAT(outcome.err, testing::Not(HasSubstr(".tmp-")))
        << "names the file that was asked for";
  }
  EXPECT_TRUE(std::filesystem::is_empty(directory_.path()));
}

}  // namespace
}  // namespace seqfuse::export_test
