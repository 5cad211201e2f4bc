#include "base/file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <string>

#include "base/error.h"
#include "base/hash.h"
#include "tests/temporary_directory.h"

namespace seqfuse::base_file_test {
namespace {
namespace fs = std::filesystem;

int entries(const fs::path& directory) {
  return static_cast<int>(
      std::distance(fs::directory_iterator(directory), fs::directory_iterator()));
}

TEST(File, WritesAndReplacesWhole) {
  const TemporaryDirectory directory;
  const fs::path file = directory.path() / "x";
  write_file_atomically(file, "first");
  write_file_atomically(file, std::string("sec\0nd", 6));
  EXPECT_EQ(read_file(file), std::string("sec\0nd", 6));
  EXPECT_EQ(entries(directory.path()), 1) << "a temporary file was left behind";
}

TEST(File, FailedWriteLeavesTheOldFile) {
  const TemporaryDirectory directory;
  const fs::path file = directory.path() / "x";
  write_file_atomically(file, "kept");
  EXPECT_THROW(write_file_atomically(directory.path() / "no" / "such" / "x", "y"), IoError);
  fs::create_directory(directory.path() / "is_a_directory");
  EXPECT_THROW(write_file_atomically(directory.path() / "is_a_directory", "y"), IoError);
  EXPECT_EQ(read_file(file), "kept");
  EXPECT_EQ(entries(directory.path()), 2);
}

TEST(File, AWriterLeavesAWholeFileOrNone) {
  const TemporaryDirectory directory;
  const fs::path file = directory.path() / "x";
  write_file_atomically(file, "kept");
  const auto half = [](const fs::path& temporary) {
    write_file_atomically(temporary, "hal");
    throw_error("stopped");
  };
  EXPECT_THROW(write_file_atomically(file, half), Error);
  EXPECT_THROW(write_file_atomically(file, [](const fs::path&) {}), IoError) << "nothing written";
  EXPECT_EQ(read_file(file), "kept");
  write_file_atomically(
      file, [](const fs::path& temporary) { write_file_atomically(temporary, "whole"); });
  EXPECT_EQ(read_file(file), "whole");
  EXPECT_EQ(entries(directory.path()), 1);
}

TEST(File, WriteErrorsNameTheFileThatWasAskedFor) {
  const TemporaryDirectory directory;
  const std::string file = (directory.path() / "none/x").string();
  const auto error_of = [&](const auto& content) -> std::string {
    try {
      write_file_atomically(file, content);
    } catch (const IoError& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(error_of(std::string_view("text")),
            "cannot open " + file + ": No such file or directory");
  const std::function<void(const std::filesystem::path&)> write =
      [](const std::filesystem::path& path) {
        throw_error<IoError>("cannot write {0}: {0} is full", path.string());
      };
  EXPECT_EQ(error_of(write), "cannot write " + file + ": " + file + " is full");
}

TEST(File, ReadErrorsNameTheFile) {
  try {
    read_file("/no/such/file");
    FAIL() << "did not throw";
  } catch (const IoError& error) {
    EXPECT_STREQ(error.what(), "cannot open /no/such/file: No such file or directory");
  }
}

TEST(File, AppendsAllOrNothing) {
  const TemporaryDirectory directory;
  const fs::path file = directory.path() / "x";
  EXPECT_THROW(append_to_file(file, "y"), IoError);
  write_file_atomically(file, "one\n");
  append_to_file(file, "two\n");
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit full{.rlim_cur = 10, .rlim_max = before.rlim_max};  // two bytes more
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &full), 0);
  EXPECT_THROW(append_to_file(file, "three\n"), IoError);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(read_file(file), "one\ntwo\n");
}

TEST(PendingDirectory, AppearsOnlyOnCommit) {
  const TemporaryDirectory directory;
  const fs::path target = directory.path() / "run";
  {
    const PendingDirectory pending(target);
    write_file_atomically(pending.path() / "a", "1");
    EXPECT_FALSE(fs::exists(target));
  }
  EXPECT_EQ(entries(directory.path()), 0) << "what was not committed is removed";
  PendingDirectory pending(target);
  fs::create_directory(pending.path() / "sub");
  write_file_atomically(pending.path() / "sub" / "a", "2");
  pending.commit();
  EXPECT_EQ(read_file(target / "sub" / "a"), "2");
  EXPECT_EQ(entries(directory.path()), 1);
}

TEST(PendingDirectory, ReplacesAnExistingOne) {
  const TemporaryDirectory directory;
  const fs::path target = directory.path() / "run";
  fs::create_directory(target);
  write_file_atomically(target / "old", "1");
  PendingDirectory pending(target);
  write_file_atomically(pending.path() / "new", "2");
  pending.commit();
  EXPECT_FALSE(fs::exists(target / "old"));
  EXPECT_EQ(read_file(target / "new"), "2");
  EXPECT_EQ(entries(directory.path()), 1);
}

TEST(Hash, SeesEveryByte) {
  const TemporaryDirectory directory;
  std::string content(3'000'000, 'a');  // more than one read
  write_file_atomically(directory.path() / "a", content);
  EXPECT_EQ(hash_file(directory.path() / "a"), hash_text(content));
  content[2'500'000] ^= 1;
  EXPECT_NE(hash_file(directory.path() / "a"), hash_text(content));
  EXPECT_EQ(hash_text("").size(), std::string("xxh3:0123456789abcdef").size());
  EXPECT_NE(hash64("x", 1), hash64("x", 2));
}

}  // namespace
}  // namespace seqfuse::base_file_test
