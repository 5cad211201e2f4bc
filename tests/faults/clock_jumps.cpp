// An LD_PRELOAD library: the wall clock jumps by up to a year, forward or back, each time it is
// read. Intervals must come from the monotonic clock, which is unchanged.
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <atomic>

namespace {

time_t jump() {
  static std::atomic<unsigned> readings = 0;
  const unsigned random = ++readings * 2654435761U;
  return static_cast<time_t>(random % 63072000U) - 31536000;
}

timespec jumped() {
  timespec now{};
  syscall(SYS_clock_gettime, CLOCK_REALTIME, &now);
  now.tv_sec += jump();
  return now;
}

}  // namespace

extern "C" {

int clock_gettime(clockid_t clock, timespec* time) noexcept {
  if (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE) {
    return static_cast<int>(syscall(SYS_clock_gettime, clock, time));
  }
  *time = jumped();
  return 0;
}

int gettimeofday(timeval* time, void* /*zone*/) noexcept {
  const timespec now = jumped();
  *time = {now.tv_sec, now.tv_nsec / 1000};
  return 0;
}

time_t time(time_t* result) noexcept {
  const time_t now = jumped().tv_sec;
  if (result != nullptr) *result = now;
  return now;
}
}
