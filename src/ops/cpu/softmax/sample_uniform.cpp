#include "ops/kernels/softmax/sample_uniform.h"

#include <algorithm>

#include "base/parallel.h"
#include "base/random.h"
#include "ops/cpu/philox_words.h"

namespace seqfuse::ops {
void sample_uniform_cpu(const SampleUniformParams& params) {
  constexpr int64_t kBlock = cpu::kPhiloxWords;
  const auto size = static_cast<uint32_t>(params.size);
  parallel_for((params.count + kBlock - 1) / kBlock, 256, [&](int64_t begin, int64_t end) {
    uint32_t words[kBlock];
    for (int64_t block = begin; block < end; ++block) {
      cpu::philox_words(params.seed.value, kSampleStream,
                        static_cast<uint64_t>(block) * cpu::kPhiloxCounters, words);
      const int64_t first = block * kBlock, count = std::min(kBlock, params.count - first);
      for (int64_t i = 0; i < count; ++i) {
        params.samples[first + i] =
            static_cast<int32_t>(params.pool[Philox::below(words[i], size)]);
      }
    }
  });
}

}  // namespace seqfuse::ops
