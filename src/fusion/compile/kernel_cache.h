// Compiled kernels on disk, named by the hash of what they were compiled from, for all processes.
#pragma once

#include <filesystem>
#include <string>
#include <utility>

namespace seqfuse::fusion {

class KernelCache {
 public:
  // $SEQFUSE_KERNEL_CACHE, else $XDG_CACHE_HOME/seqfuse/kernels, else ~/.cache/seqfuse/kernels.
  static std::filesystem::path default_folder();

  // The folder is made when the first kernel is written. Where it cannot be written (read-only, full), a
  // warning is given once and kernels are compiled again in each process.
  explicit KernelCache(std::filesystem::path folder) : folder_(std::move(folder)) {}
  KernelCache() : KernelCache(default_folder()) {}

  const std::filesystem::path& folder() const { return folder_; }

  // Machine code of one function, from the cache or from NVRTC. Processes may ask for the same at once:
  // files appear whole. name: of the function, for messages. Throws Error if there is no NVRTC, or with
  // the compiler's words if the source does not compile; the source is then kept in the folder, or in the
  // folder for temporary files, and the message says where.
  std::string cubin(const std::string& source, const std::string& name,
                    const std::string& architecture) const;

  // Compiles again what the driver refused, and replaces the file.
  std::string compile_again(const std::string& source, const std::string& name,
                            const std::string& architecture) const;

 private:
  std::filesystem::path file_of(const std::string& source, const std::string& architecture) const;
  bool write(const std::filesystem::path& file, const std::string& content) const;

  std::filesystem::path folder_;
};

}  // namespace seqfuse::fusion
