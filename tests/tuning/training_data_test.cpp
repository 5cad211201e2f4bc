// Files that predictors learn from.
#include "tuning/training_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "tests/paths.h"
#include "tests/temporary_directory.h"
#include "tests/tuning/made_up_times.h"
#include "tuning/database.h"
#include "tuning/measurement_csv.h"
#include "tuning/validation.h"

namespace seqfuse::training_data_test {
namespace {

using testing::HasSubstr;
using testing::SizeIs;
using testing::ThrowsMessage;
using tuning::Measurement;
using tuning::read_training_file;

const tuning::Setting kSetting = bert_setting(16, 1024, "sliding:32", .06);

class TrainingData : public testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& text) const {
    write_file_atomically(directory_.path() / name, text);
    return (directory_.path() / name).string();
  }
  TemporaryDirectory directory_;
};

TEST_F(TrainingData, LinesAsPeopleHaveThem) {
  const std::string file = write(
      "times.txt", "1111100011001100   54.524\r\n\n# a note\n0100010111011101\t61.25  \n6826 7");
  const auto data = read_training_file(file, {.mask = "sliding:32", .batch = 16, .seq = 1024}, "");
  ASSERT_THAT(data.examples, SizeIs(3));
  EXPECT_FALSE(data.legal_forms);
  EXPECT_FALSE(data.origin.has_value());
  EXPECT_EQ(data.examples[0].milliseconds, 54.524);
  EXPECT_TRUE(data.examples[0].scheme == fusion::Scheme::from_string("1111100011001100"));
  EXPECT_EQ(data.examples[1].milliseconds, 61.25);
  EXPECT_TRUE(data.examples[2].scheme == fusion::Scheme::from_number(6826));
  EXPECT_EQ(data.examples[0].setting.batch, 16);
  EXPECT_EQ(data.examples[0].setting.seq, 1024);
  // Rows 0 to 31 see 33 to 64 keys, as many the last ones; all others 65.
  EXPECT_DOUBLE_EQ(data.examples[0].setting.mask_density,
                   (1024.0 * 65 - 2 * (32 * 33 / 2)) / (1024.0 * 1024));
  const auto at = read_training_file(file + "@8,512,causal", {}, "").examples;
  EXPECT_EQ(at[0].setting.batch, 8);
  EXPECT_EQ(at[0].setting.seq, 512);
  EXPECT_DOUBLE_EQ(at[0].setting.mask_density, (512.0 * 513 / 2) / (512.0 * 512));
}

TEST_F(TrainingData, LinesThatAreRefused) {
  const auto refused = [&](const std::string& line, const std::string& why) {
    const std::string file = write("times.txt", "1111100011001100 54.524\n" + line + "\n");
    EXPECT_THAT([&] { read_training_file(file, {}, ""); }, ThrowsMessage<DataError>(HasSubstr(why)))
        << line;
  };
  refused("1111100011001100 nan", "times.txt:2: the time is 'nan'");
  refused("1111100011001100 inf", "the time is 'inf'");
  refused("1111100011001100 -3", "the time is '-3'");
  refused("1111100011001100 0", "the time is '0'");
  refused("1111100011001100 5 6", "the time is '5 6'");
  refused("1111100011001100 5ms", "the time is '5ms'");
  refused("1111100011001100", "expected a scheme, white space and milliseconds");
  refused("111110001100110 5", "has 15 characters");
  refused("11111000110011000 5", "has 17 characters");
  refused("11111000110011x0 5", "character 15 of '11111000110011x0'");
  refused("65536 5", "65536 is out of range");
  refused("-1 5", "character 1 of '-1'");
  const std::string empty = write("empty.txt", "# nothing\n");
  EXPECT_THAT([&] { read_training_file(empty, {}, ""); },
              ThrowsMessage<DataError>(HasSubstr("it has no line")));
  EXPECT_THROW(read_training_file("/no/such/file", {}, ""), IoError);
  EXPECT_THAT([&] { read_training_file("none.txt@16,x,causal", {}, ""); },
              ThrowsMessage<UsageError>(HasSubstr("expected FILE@BATCH,SEQ,MASK")));
  EXPECT_THAT([&] { read_training_file("none.txt@16", {}, ""); },
              ThrowsMessage<UsageError>(HasSubstr("expected FILE@BATCH,SEQ,MASK")));
  EXPECT_THAT([&] { read_training_file("none.txt@1,8,diagonal", {}, ""); },
              ThrowsMessage<UsageError>(HasSubstr("diagonal")));
  const std::string damaged = write("damaged.db", std::string(5000, 'x'));
  EXPECT_THAT([&] { read_training_file(damaged, {}, ""); },
              ThrowsMessage<DataError>(HasSubstr("damaged, or no database")));
}

TEST_F(TrainingData, DatabaseBySettingAndOrigin) {
  const std::string file = (directory_.path() / "tune.db").string();
  Measurement first = measured({kSetting, fusion::Scheme::from_number(41130), 3});
  Measurement again = first, old = first, wrong = first, part = first, longer = first;
  again.milliseconds = 2;  // the same scheme with other tiles
  old.origin.version = "0.0.9";
  wrong.status = tuning::Status::wrong;
  wrong.milliseconds.reset();
  part.scheme.reset();
  part.segment = {0, 1};
  longer.setting.seq = 4096;
  Measurement other_card = first;
  other_card.origin.card = "NVIDIA A100";
  {
    tuning::Database database(file, tuning::Database::Access::write);
    database.add({old, other_card, first, again, wrong, part, longer});
  }
  const auto all = read_training_file(file, {}, "");
  ASSERT_THAT(all.examples, SizeIs(2));
  EXPECT_EQ(all.examples[0].milliseconds, 3);
  EXPECT_TRUE(all.examples[1].setting == longer.setting);
  EXPECT_TRUE(all.legal_forms);
  EXPECT_TRUE(all.origin == first.origin);
  EXPECT_EQ(all.of_other_origins, 2);
  EXPECT_EQ(all.without_time, 1);
  EXPECT_THAT(read_training_file(file, {.seq = 4096}, "").examples, SizeIs(1));
  EXPECT_TRUE(read_training_file(file, {}, "NVIDIA A100").origin == other_card.origin);
  EXPECT_THAT(
      [&] { read_training_file(file, {.batch = 3}, ""); },
      ThrowsMessage<DataError>(HasSubstr("no time of a whole scheme of what was selected")));
  const std::string csv = (directory_.path() / "a100.csv").string();
  tuning::write_csv(csv, std::vector{other_card});
  EXPECT_THAT([&] { tuning::read_training_files(std::vector{file, csv}, {}, ""); },
              ThrowsMessage<UsageError>(HasSubstr("do not mix")));
}

void expect_learned(const std::vector<tuning::Example>& examples, double correlation) {
  const auto held = tuning::hold_out_schemes(examples, {.trees = 100, .depth = 4}, 3, 1);
  ASSERT_FALSE(held.settings.empty());
  for (const tuning::HeldOut& one : held.settings)
    EXPECT_GT(one.correlation, correlation) << tuning::printed(one.setting);
}

TEST_F(TrainingData, LearnsFromACsvFile) {
  std::vector<Measurement> measurements;
  for (const tuning::Example& example : made_up_examples({kSetting}, .02, 5))
    measurements.push_back(measured(example));
  const std::string file = (directory_.path() / "search.csv").string();
  tuning::write_csv(file, measurements);
  expect_learned(read_training_file(file, {}, "").examples, .9);
}

// Searches that were recorded on real cards, as far as the repository has them.
TEST_F(TrainingData, LearnsFromRecordedSearches) {
  const std::filesystem::path results = test::source_directory() + "/benchmarks/results";
  int files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(results)) {
    if (entry.path().extension() != ".csv") continue;
    if (entry.path().parent_path().filename() != "fusion") continue;
    ++files;
    SCOPED_TRACE(entry.path().string());
    expect_learned(read_training_file(entry.path().string(), {}, "").examples, .7);
  }
  if (files == 0) GTEST_SKIP() << "no search is recorded yet";
}

}  // namespace
}  // namespace seqfuse::training_data_test
