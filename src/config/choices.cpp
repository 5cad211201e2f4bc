#include "config/choices.h"

#include <cctype>
#include <string>

namespace seqfuse::config {

std::string_view why_refused(KernelBackend, std::string_view name) {
  std::string lower(name);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (lower != "triton" && lower != "pytorch") return "";
  return "Only CUTLASS backend is supported; write 'cutlass', which also runs without a GPU, or "
         "remove the line";
}

}  // namespace seqfuse::config
