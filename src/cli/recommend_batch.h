// seqfuse recommend RUN --users: the best items for many users, into a file.
#pragma once

#include <CLI/CLI.hpp>

#include <cstdint>
#include <string>

namespace seqfuse::cli {

// The flags that only a batch has, as they were typed.
struct BatchFlags {
  std::string users, output, format, user_column, delimiter, exclude, only;
  std::string cold_users = "error";
  bool exclude_seen = false, resume = false;
  int64_t batch_size = 4096;

  void add_to(CLI::App& app);
  // Throws UsageError if one of them is given, because --users is not.
  static void check_not_given(const CLI::App& app);
};

// Flags that a single request has too.
struct BatchArguments {
  std::string run, checkpoint, data, device;
  std::string candidates, request_time;  // of all users; "": not given
  std::string time_format;               // of times in text; "": numbers or ISO 8601
  int64_t top_k = 10;
  bool include_seen = false, skip_unknown = false;
};

// Writes flags.output, which appears whole or not at all; until then what is done is kept beside it
// (serving/batch/unfinished_batch.h). Under torchrun the processes share the users out. Returns the
// exit code: 128 + the signal where one stopped it. Throws UsageError, DataError or IoError.
int recommend_batch(const BatchFlags& flags, const BatchArguments& arguments);

}  // namespace seqfuse::cli
