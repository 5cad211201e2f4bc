// Loaded before all others (LD_PRELOAD): takes over the locale of the environment, as programs do
// that use this library, and refuses to go on if its decimal point is not a comma.
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
