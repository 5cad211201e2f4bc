// A stand-in for a profiler: NVTX loads it from NVTX_INJECTION64_PATH. Writes a line for each range that
// begins, and "<" for each that ends, to the file that SEQFUSE_NVTX_LOG names.
#include <nvtx3/nvToolsExt.h>

#include <cstdio>
#include <cstdlib>

namespace {

FILE* log_file() {
  static FILE* file = std::fopen(std::getenv("SEQFUSE_NVTX_LOG"), "a");
  return file;
}

int NVTX_API push(const char* name) {
  std::fprintf(log_file(), "%s\n", name);
  std::fflush(log_file());
  return 0;
}

int NVTX_API pop() {
  std::fputs("<\n", log_file());
  std::fflush(log_file());
  return 0;
}

}  // namespace

extern "C" int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table) {
  const auto* callbacks =
      static_cast<const NvtxExportTableCallbacks*>(get_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable functions = nullptr;
  unsigned int size = 0;
  if (callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &functions, &size) == 0) return 0;
  *functions[NVTX_CBID_CORE_RangePushA] = reinterpret_cast<NvtxFunctionPointer>(push);
  *functions[NVTX_CBID_CORE_RangePop] = reinterpret_cast<NvtxFunctionPointer>(pop);
  return 1;
}
