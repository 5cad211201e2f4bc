// Compiled with -march of the CPU operators, so that it sees the same macros. Data only: none of
// its code runs, so it is safe on a processor that lacks these instructions.
namespace seqfuse::detail {

extern const char* const kBuiltForFeatures[];
const char* const kBuiltForFeatures[] = {
#ifdef __SSE4_2__
    "sse4_2",
#endif
#ifdef __AVX__
    "avx",
#endif
#ifdef __AVX2__
    "avx2",
#endif
#ifdef __FMA__
    "fma",
#endif
#ifdef __F16C__
    "f16c",
#endif
#ifdef __BMI2__
    "bmi2",
#endif
#ifdef __AVX512F__
    "avx512f",
#endif
#ifdef __AVX512BW__
    "avx512bw",
#endif
#ifdef __AVX512DQ__
    "avx512dq",
#endif
#ifdef __AVX512VL__
    "avx512vl",
#endif
#ifdef __AVX512VNNI__
    "avx512_vnni",
#endif
#ifdef __AVX512BF16__
    "avx512_bf16",
#endif
#ifdef __AVX512FP16__
    "avx512_fp16",
#endif
    nullptr};

}  // namespace seqfuse::detail
