#include "ops/torch/device_seeds.h"

#include <algorithm>
#include <atomic>
#include <utility>

namespace seqfuse::ops {
namespace {

std::atomic<const DeviceSeeds*> in_use = nullptr;

}  // namespace

DeviceSeeds::DeviceSeeds(std::vector<int64_t> seeds, at::Tensor places)
    : seeds_(std::move(seeds)), places_(std::move(places)) {
  TORCH_CHECK_VALUE(places_.is_cuda() && places_.scalar_type() == at::kLong &&
                        places_.is_contiguous() && places_.numel() == std::ssize(seeds_),
                    "DeviceSeeds: places is ", places_.toString(), " ", places_.sizes(), " for ",
                    seeds_.size(), " seeds; expected a contiguous int64 CUDA tensor with one each");
  const DeviceSeeds* none = nullptr;
  TORCH_CHECK(in_use.compare_exchange_strong(none, this), "DeviceSeeds: others are in use");
}

DeviceSeeds::~DeviceSeeds() {
  in_use = nullptr;
}

const uint64_t* DeviceSeeds::place_of(int64_t seed) const {
  const auto found = std::find(seeds_.begin(), seeds_.end(), seed);
  TORCH_CHECK(found != seeds_.end(), "the seed ", seed, " is none of the ", seeds_.size(),
              " that this step announced: a CUDA graph would repeat it");
  return reinterpret_cast<const uint64_t*>(places_.const_data_ptr<int64_t>()) +
         (found - seeds_.begin());
}

Seed kernel_seed(const at::Tensor& x, int64_t seed) {
  const DeviceSeeds* seeds = in_use;
  return {static_cast<uint64_t>(seed), seeds && x.is_cuda() ? seeds->place_of(seed) : nullptr};
}

}  // namespace seqfuse::ops
