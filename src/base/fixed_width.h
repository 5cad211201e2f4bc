// int64_t and its like, also for kernels compiled at run time: NVRTC has no standard library.
#pragma once

#ifdef __CUDACC_RTC__
using int16_t = short;
using int32_t = int;
using int64_t = long;
using uint16_t = unsigned short;
using uint32_t = unsigned;
using uint64_t = unsigned long;
#else
#include <cstdint>
#endif
