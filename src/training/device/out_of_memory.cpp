#include "training/device/out_of_memory.h"

#include <algorithm>
#include <charconv>
#include <new>
#include <optional>
#include <string_view>

#ifdef SEQFUSE_HAS_CUDA
#include <c10/cuda/CUDACachingAllocator.h>
#endif
#include <fmt/format.h>

#include "base/memory.h"
#include "base/progress.h"

namespace seqfuse::training {
namespace {

// Messages of libraries that throw no specific exception for it.
constexpr std::string_view kSigns[] = {"can't allocate memory", "CUDA error: out of memory",
                                       "CUBLAS_STATUS_ALLOC_FAILED"};

// The first number after a word in a text; 0 if there is none.
double number_after(std::string_view text, std::string_view word) {
  const size_t at = text.find(word);
  if (at == std::string_view::npos) return 0;
  text.remove_prefix(std::min(text.find_first_of("0123456789", at + word.size()), text.size()));
  uint64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return static_cast<double>(number);
}

std::string host_memory() {
  const auto text = [](std::optional<int64_t> bytes) {
    return format_count(static_cast<double>(bytes.value_or(0)));
  };
  return fmt::format("{}B of this machine's {}B are free", text(available_host_memory()),
                     text(total_host_memory()));
}

}  // namespace

bool is_out_of_memory(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr ||
      dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr) {
    return true;
  }
  const std::string_view text = error.what();
  return std::any_of(std::begin(kSigns), std::end(kSigns), [&](std::string_view sign) {
    return text.find(sign) != std::string_view::npos;
  });
}

std::string message_of(const std::exception& error) {
  const auto* from_torch = dynamic_cast<const c10::Error*>(&error);
  std::string text = from_torch != nullptr ? from_torch->what_without_backtrace() : error.what();
  if (!is_out_of_memory(error)) return text;
  // Drop torch's advice on its allocator in favour of ours.
  text = text.substr(0, text.find(" If reserved but unallocated"));
  constexpr std::string_view kHost = "you tried to allocate ";
  if (text.find(kHost) != std::string::npos) {
    return fmt::format("tried to allocate {}B; {}", format_count(number_after(text, kHost)),
                       host_memory());
  }
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) return host_memory();
  return text;
}

void release_cached_memory([[maybe_unused]] at::Device device) {
#ifdef SEQFUSE_HAS_CUDA
  if (device.is_cuda()) c10::cuda::CUDACachingAllocator::emptyCache();
#endif
}

}  // namespace seqfuse::training
