#include "fusion/compile/kernel_cache.h"

#include <atomic>
#include <cstdlib>
#include <system_error>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/sha256.h"
#include "fusion/compile/nvrtc.h"

namespace seqfuse::fusion {
namespace fs = std::filesystem;

fs::path KernelCache::default_folder() {
  const auto set = [](const char* name) {
    const char* value = std::getenv(name);
    return fs::path(value != nullptr ? value : "");
  };
  if (const fs::path chosen = set("SEQFUSE_KERNEL_CACHE"); !chosen.empty()) return chosen;
  if (const fs::path cache = set("XDG_CACHE_HOME"); !cache.empty())
    return cache / "seqfuse/kernels";
  if (const fs::path home = set("HOME"); !home.empty()) return home / ".cache/seqfuse/kernels";
  return fs::temp_directory_path() / "seqfuse-kernels";
}

fs::path KernelCache::file_of(const std::string& source, const std::string& architecture) const {
  const std::string all = source + "\n// " + architecture + ", NVRTC " + Nvrtc::get().version();
  return folder_ / (sha256(all) + "." + architecture + ".cubin");
}

bool KernelCache::write(const fs::path& file, const std::string& content) const {
  try {
    std::error_code ignored;  // write_file_atomically says what is wrong
    fs::create_directories(file.parent_path(), ignored);
    write_file_atomically(file, content);
    return true;
  } catch (const IoError& error) {
    static std::atomic<bool> warned = false;
    if (!warned.exchange(true)) {
      log::warning("kernels",
                   "{}; kernels are compiled again in each process (SEQFUSE_KERNEL_CACHE "
                   "names another folder)",
                   error.what());
    }
    return false;
  }
}

std::string KernelCache::cubin(const std::string& source, const std::string& name,
                               const std::string& architecture) const {
  std::error_code error;
  const fs::path file = file_of(source, architecture);
  if (fs::is_regular_file(file, error) && fs::file_size(file, error) > 0) {
    try {
      return read_file(file);
    } catch (
        const IoError&) {  // removed meanwhile, or not readable: compiled as if it were not there
    }
  }
  return compile_again(source, name, architecture);
}

std::string KernelCache::compile_again(const std::string& source, const std::string& name,
                                       const std::string& architecture) const {
  Nvrtc::Result result = Nvrtc::get().compile(source, name, architecture);
  const fs::path file = file_of(source, architecture);
  if (result.cubin.empty()) {
    fs::path kept = fs::path(file).replace_extension(".failed.cu");
    if (!write(kept, source)) {
      kept = fs::temp_directory_path() / kept.filename();
      if (!write(kept, source)) kept = "nowhere, since it cannot be written";
    }
    throw_error("NVRTC does not compile the kernel {} for {}: {}\n  its source is kept: {}", name,
                architecture, result.log, kept.string());
  }
  write(fs::path(file).replace_extension().replace_extension(".cu"), source);
  write(file, result.cubin);
  return std::move(result.cubin);
}

}  // namespace seqfuse::fusion
