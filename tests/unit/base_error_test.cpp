#include "base/error.h"

#include <gtest/gtest.h>

#include <cerrno>

namespace seqfuse::base_error_test {
namespace {

TEST(Error, CheckFormatsOnlyOnFailure) {
  int formatted = 0;
  const auto count = [&] { return ++formatted; };
  SEQFUSE_CHECK(true, "never shown {}", count());
  EXPECT_EQ(formatted, 0);
  try {
    SEQFUSE_CHECK(1 == 2, "weight has {} elements, expected {}", 512, 1024);
    FAIL() << "did not throw";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "weight has 512 elements, expected 1024");
  }
}

TEST(Error, CheckIsOneStatement) {
  // Must bind the else to the outer if.
  bool reached_else = false;
  if (false)
    SEQFUSE_CHECK(true, "x");
  else
    reached_else = true;
  EXPECT_TRUE(reached_else);
}

TEST(Error, TaxonomyIsCaughtByTheBase) {
  EXPECT_THROW(throw_error<UsageError>("x"), UsageError);
  EXPECT_THROW(throw_error<DataError>("x"), Error);
  EXPECT_THROW(SEQFUSE_CHECK_AS(IoError, false, "x"), IoError);
  try {
    throw_error<DataError>("x");
  } catch (const UsageError&) {
    FAIL() << "a data error is not a usage error";
  } catch (const DataError&) {
    SUCCEED();
  }
}

TEST(Error, ErrnoIsNamed) {
  errno = ENOSPC;
  try {
    throw_errno("cannot write /a/b");
  } catch (const IoError& error) {
    EXPECT_STREQ(error.what(), "cannot write /a/b: No space left on device");
  }
}

}  // namespace
}  // namespace seqfuse::base_error_test
