// The database of measurements: what comes back, two processes at once, damage, other programs' files.
#include "tuning/database.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>

#include "base/error.h"
#include "base/file.h"
#include "tests/temporary_directory.h"
#include "tests/tuning/made_up_times.h"
#include "tuning/measurement_csv.h"

namespace seqfuse::database_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;
using testing::ThrowsMessage;
using tuning::Database;
using tuning::Filter;
using tuning::Measurement;
using tuning::Status;

const tuning::Setting kSetting = bert_setting(16, 2048, "bigbird:64,64,3,1", 1.0 / 3);

Measurement of_scheme(int64_t scheme, double milliseconds) {
  return measured({kSetting, fusion::Scheme::from_number(scheme), milliseconds});
}

Measurement of_segment() {
  Measurement m = of_scheme(41130, .125);
  m.scheme.reset();
  m.segment = {7, 9};
  m.config = "tile 128x64, \"warps\" 4";
  m.predicted = 1.0 / 7;
  return m;
}

Measurement failed(Status status) {
  Measurement m = of_scheme(41130, 1);
  m.milliseconds.reset();
  m.status = status;
  return m;
}

void expect_equal(const Measurement& a, const Measurement& b) {
  EXPECT_TRUE(a.setting == b.setting);
  EXPECT_EQ(a.setting.mask_density, b.setting.mask_density);
  EXPECT_EQ(a.scheme, b.scheme);
  EXPECT_TRUE(a.segment == b.segment);
  EXPECT_EQ(a.config, b.config);
  EXPECT_EQ(a.milliseconds, b.milliseconds);
  EXPECT_EQ(a.predicted, b.predicted);
  EXPECT_EQ(a.status, b.status);
  EXPECT_TRUE(a.origin == b.origin);
  EXPECT_EQ(a.date, b.date);
}

class DatabaseTest : public testing::Test {
 protected:
  Database open(Database::Access access = Database::Access::write) const { return {file_, access}; }
  void execute(const char* sql) const {
    sqlite3* handle = nullptr;
    sqlite3_open(file_.c_str(), &handle);
    ASSERT_EQ(sqlite3_exec(handle, sql, nullptr, nullptr, nullptr), SQLITE_OK)
        << sqlite3_errmsg(handle);
    sqlite3_close(handle);
  }
  void expect_refused(Database::Access access, const std::string& why) const {
    EXPECT_THAT([&] { open(access).measurements(); }, ThrowsMessage<DataError>(HasSubstr(why)));
  }

  TemporaryDirectory directory_;
  std::filesystem::path file_ = directory_.path() / "tune.db";
};

using DatabaseDeathTest = DatabaseTest;  // which fork

TEST_F(DatabaseTest, GivesBackWhatWasAdded) {
  const std::vector<Measurement> all{of_scheme(41130, 54.524), of_segment(), failed(Status::wrong),
                                     failed(Status::failed), failed(Status::timeout)};
  {
    Database database = open();
    database.add(all[0]);
    database.add({all.begin() + 1, all.end()});
  }
  const Database database = open(Database::Access::read);
  const auto found = database.measurements();
  ASSERT_THAT(found, SizeIs(5));
  for (size_t i = 0; i < all.size(); ++i) expect_equal(found[i], all[i]);
  EXPECT_EQ(database.count(), 5);
  EXPECT_THAT(database.measurements({.kind = Filter::Kind::segments}), SizeIs(1));
  EXPECT_THAT(database.measurements({.kind = Filter::Kind::schemes}), SizeIs(4));
  EXPECT_THAT(database.measurements({.status = Status::timeout}), SizeIs(1));
}

TEST_F(DatabaseTest, OtherCardsVersionsAndSettingsDoNotMix) {
  Database database = open();
  Measurement older = of_scheme(41130, 1), a100 = older, shorter = older;
  older.origin.version = "0.0.9";
  a100.origin.card = "NVIDIA A100";
  shorter.setting.seq = 128;
  database.add({older, a100, of_scheme(41130, 2), shorter, of_scheme(41130, 3)});
  EXPECT_EQ(database.count(), 5);  // the same scheme again is added, nothing is replaced
  EXPECT_THAT(database.measurements({.origin = older.origin}), SizeIs(1));
  EXPECT_THAT(database.measurements({.origin = a100.origin}), SizeIs(1));
  ASSERT_THAT(database.settings(), SizeIs(2));
  EXPECT_TRUE(database.settings()[1] == shorter.setting);
  const auto found = database.measurements(
      {.setting = kSetting, .origin = of_scheme(41130, 2).origin, .status = Status::ok});
  ASSERT_THAT(found, SizeIs(2));
  EXPECT_EQ(found[0].milliseconds, 2);
  EXPECT_EQ(found[1].milliseconds, 3);
}

TEST_F(DatabaseTest, RefusesMeasurementsThatAreNone) {
  Database database = open();
  const auto refused = [&](const auto& change, const std::string& why) {
    Measurement m = of_scheme(41130, 2);
    change(m);
    EXPECT_THAT([&] { database.add({of_segment(), m}); }, ThrowsMessage<Error>(HasSubstr(why)));
  };
  refused([](Measurement& m) { m.scheme.reset(); }, "neither a scheme and a segment");
  refused([](Measurement& m) { m.segment = {0, 1}; }, "both a scheme and a segment");
  refused([](Measurement& m) { m.scheme = 1365; }, "expected its legal form");
  refused([](Measurement& m) { m.scheme = 70000; }, "expected 0 to 65535");
  refused([](Measurement& m) { m.milliseconds = std::nan(""); }, "the time is nan ms");
  refused([](Measurement& m) { m.milliseconds = 0; }, "the time is 0 ms");
  refused([](Measurement& m) { m.milliseconds.reset(); }, "status ok without a time");
  refused([](Measurement& m) { m.status = Status::wrong; }, "status wrong with a time");
  refused([](Measurement& m) { m.setting.batch = 0; }, "batch is 0");
  refused([](Measurement& m) { m.setting.mask_density = 1.5; }, "density is 1.5");
  refused([](Measurement& m) { m.origin.card = ""; }, "no card");
  refused([](Measurement& m) { m.date = ""; }, "no date");
  EXPECT_EQ(database.count(), 0);  // of several all or none
}

// Half of the rows by a child process, which also creates the file at the same time.
TEST_F(DatabaseDeathTest, TwoProcessesAddAtOnce) {
  constexpr int kRows = 100;
  const auto add_rows = [&](double milliseconds) {
    Database database = open();
    for (int i = 0; i < kRows; ++i) database.add(of_scheme(41130, milliseconds));
  };
  const pid_t child = fork();
  if (child == 0) {
    try {
      add_rows(1);
      _exit(0);
    } catch (const std::exception& error) {
      fmt::print(stderr, "child: {}\n", error.what());
      _exit(1);
    }
  }
  add_rows(2);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  int of_child = 0;
  for (const Measurement& m : open(Database::Access::read).measurements())
    of_child += *m.milliseconds == 1 ? 1 : 0;
  EXPECT_EQ(of_child, kRows);
  EXPECT_EQ(open(Database::Access::read).count(), 2 * kRows);
}

// A child process holds the lock for a while; readers do not wait for it.
TEST_F(DatabaseDeathTest, AnotherProcessesLockIsWaitedFor) {
  open().add(of_segment());
  int locked[2];
  ASSERT_EQ(pipe(locked), 0);
  const pid_t child = fork();
  if (child == 0) {
    sqlite3* handle = nullptr;
    sqlite3_open(file_.c_str(), &handle);
    const bool holds =
        sqlite3_exec(handle, "BEGIN IMMEDIATE", nullptr, nullptr, nullptr) == SQLITE_OK;
    if (write(locked[1], "x", 1) != 1) _exit(1);
    usleep(300'000);
    sqlite3_exec(handle, "COMMIT", nullptr, nullptr, nullptr);
    _exit(holds ? 0 : 1);
  }
  char ready = 0;
  ASSERT_EQ(read(locked[0], &ready, 1), 1);
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(open(Database::Access::read).count(), 1);
  open().add(of_segment());
  EXPECT_GT(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(100));
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(open(Database::Access::read).count(), 2);
  close(locked[0]);
  close(locked[1]);
}

TEST_F(DatabaseTest, DamagedFiles) {
  EXPECT_THAT([&] { open(Database::Access::read); },
              ThrowsMessage<DataError>(HasSubstr("there is no such file")));
  std::ofstream(file_) << "";
  expect_refused(Database::Access::read, "no database of measurements");
  std::ofstream(file_) << std::string(5000, 'x');
  expect_refused(Database::Access::read, "damaged, or no database");
  expect_refused(Database::Access::write, "damaged, or no database");
  EXPECT_EQ(read_file(file_), std::string(5000, 'x'));  // and left as it was
  std::filesystem::remove(file_);
  {
    Database database = open();
    for (int i = 0; i < 100; ++i) database.add(of_segment());
  }
  const std::string good = read_file(file_);
  ASSERT_GT(good.size(), 3 * 4096U);
  write_file_atomically(file_, good.substr(0, good.size() - 4096));
  expect_refused(Database::Access::read, "damaged");
  std::string bad = good;
  bad.replace(4096, 4096, std::string(4096, '\xff'));
  write_file_atomically(file_, bad);
  expect_refused(Database::Access::write, "damaged");
}

TEST_F(DatabaseTest, FilesOfOtherProgramsAndNewerVersions) {
  execute("CREATE TABLE t (x)");
  expect_refused(Database::Access::read, "no database of measurements");
  expect_refused(Database::Access::write, "no database of measurements");
  std::filesystem::remove(file_);
  open().add(of_segment());
  execute("UPDATE measurements SET milliseconds = -1");
  expect_refused(Database::Access::read, "the time is -1 ms");
  execute("UPDATE measurements SET milliseconds = 1, status = 'odd'");
  expect_refused(Database::Access::read, "status 'odd'");
  execute("PRAGMA user_version = 2");
  expect_refused(Database::Access::write, "a database of format 2");
  EXPECT_THAT([&] { Database(directory_.path(), Database::Access::write); },
              ThrowsMessage<DataError>(HasSubstr("a folder")));
  EXPECT_THROW(Database(directory_.path() / "no" / "tune.db", Database::Access::write), IoError);
}

TEST_F(DatabaseTest, CsvKeepsEverything) {
  const std::vector<Measurement> all{of_scheme(41130, 1.0 / 3), of_segment(),
                                     failed(Status::timeout)};
  const auto csv = directory_.path() / "search.csv";
  tuning::write_csv(csv, all);
  const auto found = tuning::read_csv(csv);
  ASSERT_THAT(found, SizeIs(3));
  for (size_t i = 0; i < all.size(); ++i) expect_equal(found[i], all[i]);

  const std::string good = read_file(csv);
  const auto refused = [&](const std::string& text, const std::string& why) {
    write_file_atomically(csv, text);
    EXPECT_THAT([&] { tuning::read_csv(csv); }, ThrowsMessage<DataError>(HasSubstr(why)));
  };
  refused("a,b\n1,2\n", "expected model,hidden");
  refused("scheme,milliseconds,mask_density\n", "column model is there 0 times");
  refused("more," + good, "unknown column 'more'");
  refused(good + "x,1\n", "search.csv:5: 2 fields; expected 21");
  std::string wrong = good;
  wrong.replace(wrong.find("41130"), 5, "41x30");
  refused(wrong, "search.csv:2: scheme is '41x30'");
}

// As `sqlite3 -header -csv` writes a table: with its id, other columns in the table's order.
TEST_F(DatabaseTest, CsvWithIds) {
  const auto csv = directory_.path() / "search.csv";
  tuning::write_csv(csv, std::vector{of_segment()});
  std::string text = read_file(csv);
  text.insert(text.find('\n') + 1, "17,");
  write_file_atomically(csv, "id," + text);
  const auto found = tuning::read_csv(csv);
  ASSERT_THAT(found, SizeIs(1));
  expect_equal(found[0], of_segment());
}

}  // namespace
}  // namespace seqfuse::database_test
