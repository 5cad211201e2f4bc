// The kernels of a decoding step alone: checked against sums in float64 on the host, then timed as
// one CUDA graph a token with the shape of Pythia-2.8B and random weights. launches: each kernel of a
// layer alone, in a chain of one launch for each layer.
// usage: decode_kernel_bench [check [few]] [time] [launches]
#include <cstdio>
#include <cstring>

#include "benchmarks/kernels/decode_check.cuh"
#include "benchmarks/kernels/decode_time.cuh"

int main(int argc, char** argv) {
  const auto wants = [&](const char* what) {
    for (int i = 1; i < argc; ++i)
      if (std::strcmp(argv[i], what) == 0) return true;
    return argc == 1 && std::strcmp(what, "few") != 0 && std::strcmp(what, "launches") != 0;
  };
  if (wants("check")) {
    seqfuse::bench::check<__half>(wants("few"));
    seqfuse::bench::check<__nv_bfloat16>(wants("few"));
    std::printf("%d checks failed\n", seqfuse::bench::failures);
  }
  if (wants("time")) {
    const double ceiling = seqfuse::bench::copy_speed();
    std::printf("copy: %.2f TB/s\n", ceiling);
    for (const bool int8 : {false, true})
      for (const int batch : {1, 2, 4, 8, 16})
        for (const int64_t cache : {128, 1024, 1091, 2048})
          seqfuse::bench::time_model({}, cache, batch, int8, ceiling);
  }
  if (wants("launches")) {
    using seqfuse::bench::What;
    const double ceiling = seqfuse::bench::copy_speed();
    for (const bool int8 : {false, true})
      for (const int batch : {1, 16})
        for (const What what : {What::norms, What::in, What::attention, What::out})
          if (!int8 || what == What::in || what == What::out)
            seqfuse::bench::time_model({}, 1024, batch, int8, ceiling, what);
  }
  return seqfuse::bench::failures > 0;
}
