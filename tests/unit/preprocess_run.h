// Runs preprocess() on small inputs in a temporary directory.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "data/dataset/dataset.h"
#include "data/ingest/preprocess.h"
#include "tests/temporary_directory.h"

namespace seqfuse::data {

class PreprocessTest : public testing::Test {
 protected:
  PreprocessTest() {
    options_.ingest.input = path("in");
    options_.output = path("out");
    csv_.name = "csv";
    csv_.from_flags = true;
    csv_.user_column = "user";
    csv_.item_column = "item";
    csv_.time_column = "time";
  }

  std::filesystem::path path(const std::string& name) const { return directory_.path() / name; }

  void write(const std::string& name, std::string_view content) const {
    std::filesystem::create_directories(path(name).parent_path());
    std::ofstream(path(name), std::ios::binary) << content;
  }

  std::shared_ptr<const Dataset> run(const DatasetFormat& format) {
    result_ = preprocess(format, options_);
    return Dataset::open(options_.output);
  }
  std::shared_ptr<const Dataset> run_csv(std::string_view content) {
    write("in", content);
    options_.force = true;
    return run(csv_);
  }

  // The error message. A failed run must leave nothing next to the input.
  std::string refused(const DatasetFormat& format) {
    std::string message;
    try {
      preprocess(format, options_);
      ADD_FAILURE() << "was not refused";
    } catch (const Error& error) {
      message = error.what();
    }
    for (const auto& entry : std::filesystem::directory_iterator(directory_.path())) {
      EXPECT_THAT(entry.path().filename().string(), testing::Not(testing::HasSubstr(".tmp")))
          << "left behind";
    }
    return message;
  }
  std::string refused_csv(std::string_view content) {
    write("in", content);
    return refused(csv_);
  }

  static std::vector<std::string> items(const Dataset& dataset, int64_t row) {
    std::vector<std::string> ids;
    for (const int64_t item : dataset.user(row).items) ids.push_back(dataset.item_id(item));
    return ids;
  }

  TemporaryDirectory directory_;
  PreprocessOptions options_;
  DatasetFormat csv_;
  PreprocessResult result_;
};

}  // namespace seqfuse::data
