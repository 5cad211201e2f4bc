// An LD_PRELOAD library: sets the locale from the environment, as programs that use our library may
// do, and ends the process if the decimal point is not a comma.
#include <unistd.h>

#include <clocale>
#include <cstring>

namespace {

__attribute__((constructor)) void set_locale() {
  if (std::setlocale(LC_ALL, "") == nullptr ||
      std::strcmp(std::localeconv()->decimal_point, ",") != 0) {
    _exit(99);
  }
}

}  // namespace
