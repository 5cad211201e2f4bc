// Exceptions and argument checks. Every message says what was given, what was expected, what to do.
//
// Taxonomy (the command line maps it to exit codes):
//   UsageError   the request is wrong: flags, gin files, unknown names            exit 2
//   DataError    an input file, dataset or checkpoint is missing, malformed, ...  exit 1
//   IoError      the operating system refused: disk full, read-only, ...          exit 1
//   Error        everything else                                                  exit 1
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace seqfuse {

class Error : public std::runtime_error {
  using std::runtime_error::runtime_error;
};
class UsageError : public Error {
  using Error::Error;
};
class DataError : public Error {
  using Error::Error;
};
class IoError : public Error {
  using Error::Error;
};

// throw_error<DataError>("{}:{}: expected {} columns, found {}", file, line, 4, n);
template <class E = Error, class... Args>
[[noreturn]] void throw_error(fmt::format_string<Args...> format, Args&&... args) {
  throw E(fmt::format(format, std::forward<Args>(args)...));
}

// IoError with errno's text appended: "cannot open /x/y: No such file or directory".
[[noreturn]] void throw_errno(const std::string& what);

}  // namespace seqfuse

// Checks a condition that depends on input. The message is formatted only on failure.
#define SEQFUSE_CHECK_AS(ErrorType, condition, ...)   \
  do {                                                \
    if (!(condition)) [[unlikely]]                    \
      ::seqfuse::throw_error<ErrorType>(__VA_ARGS__); \
  } while (false)

#define SEQFUSE_CHECK(condition, ...) SEQFUSE_CHECK_AS(::seqfuse::Error, condition, __VA_ARGS__)
