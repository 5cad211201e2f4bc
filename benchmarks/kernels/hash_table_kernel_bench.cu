// The kernels of the hash table alone: checked against the CPU's table, then timed at several loads.
// usage: hash_table_kernel_bench [check] [time [capacity]]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <set>
#include <vector>

#include "base/random.h"
#include "benchmarks/kernels/kernel_bench.cuh"
#include "ops/kernels/hash_table/hash_table.h"
#include "ops/kernels/hash_table/rows.h"

namespace seqfuse {
namespace {

using namespace ops::hash_table;

template <class T>
struct Buffer {
  T* data = nullptr;
  int64_t size = 0;

  explicit Buffer(int64_t n) : size(n) {
    must(cudaMalloc(&data, std::max<int64_t>(n, 1) * sizeof(T)), "cudaMalloc");
    must(cudaMemset(data, 0, n * sizeof(T)), "cudaMemset");
  }
  explicit Buffer(const std::vector<T>& from) : Buffer(static_cast<int64_t>(from.size())) {
    must(cudaMemcpy(data, from.data(), size * sizeof(T), cudaMemcpyHostToDevice), "copy");
  }
  Buffer(const Buffer&) = delete;
  ~Buffer() { cudaFree(data); }
  std::vector<T> host() const {
    std::vector<T> to(size);
    must(cudaMemcpy(to.data(), data, size * sizeof(T), cudaMemcpyDeviceToHost), "copy");
    return to;
  }
};

struct DeviceTable {
  explicit DeviceTable(int64_t capacity)
      : slots(buckets_for(capacity) * kSlots),
        digests(slots),
        keys(slots),
        scores(slots),
        touched(slots),
        counters(kCounters),
        view{digests.data,  keys.data,      scores.data, touched.data,
             counters.data, slots / kSlots, capacity} {}

  int64_t count(Counter counter) const { return counters.host()[counter]; }

  int64_t slots;
  Buffer<uint8_t> digests;
  Buffer<int64_t> keys, scores;
  Buffer<uint32_t> touched;
  Buffer<int64_t> counters;
  View view;
};

struct HostTable {
  explicit HostTable(int64_t capacity)
      : digests(buckets_for(capacity) * kSlots),
        keys(digests.size()),
        scores(digests.size()),
        touched(digests.size()),
        counters(kCounters),
        view{digests.data(),  keys.data(),           scores.data(), touched.data(),
             counters.data(), buckets_for(capacity), capacity} {}

  std::vector<uint8_t> digests;
  std::vector<int64_t> keys, scores;
  std::vector<uint32_t> touched;
  std::vector<int64_t> counters;
  View view;
};

int failures = 0;
void expect(bool ok, const char* what, int64_t a = 0, int64_t b = 0) {
  if (ok) return;
  ++failures;
  std::printf("FAILED %s (%lld, %lld)\n", what, static_cast<long long>(a),
              static_cast<long long>(b));
}

Insert insert_of(const View& view, const int64_t* keys, int64_t count, uint32_t call, bool in_order,
                 int64_t* slots, uint8_t* states) {
  return {.table = view,
          .keys = keys,
          .count = count,
          .limit = nullptr,
          .often = nullptr,
          .given = nullptr,
          .allowed = nullptr,
          .score = Score::lru,
          .now = call,
          .call = call,
          .evict = true,
          .in_order = in_order,
          .evicted = {},
          .slots = slots,
          .states = states};
}

std::vector<int64_t> different_keys(Random& random, int64_t count, uint64_t range) {
  std::set<int64_t> keys;
  while (static_cast<int64_t>(keys.size()) < count)
    keys.insert(static_cast<int64_t>(random.below(range)) * 8);
  return {keys.begin(), keys.end()};
}

// Random inserts and erasures on both. In order everything is equal; else sizes, and the keys while
// none is evicted. Each slot has the key that it was given for.
void check(int64_t capacity, int64_t batch, uint64_t range, bool in_order) {
  DeviceTable device(capacity);
  HostTable host(capacity);
  Random random(static_cast<uint64_t>(capacity + batch));
  for (uint32_t call = 1; call <= 20; ++call) {
    const std::vector<int64_t> keys = different_keys(random, batch, range);
    const Buffer<int64_t> sent(keys), slots(batch), found(batch);
    const Buffer<uint8_t> states(batch);
    std::vector<int64_t> host_slots(batch);
    std::vector<uint8_t> host_states(batch);
    insert_cpu(insert_of(host.view, keys.data(), batch, call, false, host_slots.data(),
                         host_states.data()));
    must(insert_cuda(
             insert_of(device.view, sent.data, batch, call, in_order, slots.data, states.data),
             nullptr),
         "insert");
    must(find_cuda({.table = device.view,
                    .keys = sent.data,
                    .count = batch,
                    .limit = nullptr,
                    .slots = found.data},
                   nullptr),
         "find");
    const auto their_slots = slots.host();
    expect(found.host() == their_slots, "find differs from insert", capacity, call);
    const auto table_keys = device.keys.host();
    int64_t wrong = 0, placed = 0;
    for (int64_t i = 0; i < batch; ++i) {
      if (their_slots[i] < 0) continue;
      ++placed;
      wrong += table_keys[their_slots[i]] != keys[i];
    }
    expect(wrong == 0, "slots have other keys", wrong, call);
    expect(std::set<int64_t>(their_slots.begin(), their_slots.end()).size() >=
               static_cast<size_t>(placed),
           "two keys in one slot", capacity, call);
    if (in_order)
      expect(their_slots == host_slots && states.host() == host_states, "slots, states", capacity,
             call);
    const auto theirs = device.counters.host();
    if (in_order || batch <= capacity)
      expect(theirs[kSize] == host.counters[kSize], "size", theirs[kSize], host.counters[kSize]);
    if (in_order || batch <= capacity)
      expect(theirs[kFailed] == host.counters[kFailed], "failed", theirs[kFailed],
             host.counters[kFailed]);
    const int64_t gone = batch / 5;
    erase_cpu({.table = host.view,
               .keys = keys.data(),
               .count = gone,
               .limit = nullptr,
               .allowed = nullptr});
    must(erase_cuda({.table = device.view,
                     .keys = sent.data,
                     .count = gone,
                     .limit = nullptr,
                     .allowed = nullptr},
                    nullptr),
         "erase");
  }
  if (in_order) {
    expect(device.digests.host() == host.digests, "digests", capacity, batch);
    expect(device.scores.host() == host.scores, "scores", capacity, batch);
    expect(device.touched.host() == host.touched, "touched", capacity, batch);
  } else if (host.counters[kEvicted] == 0) {
    const auto live = [](const std::vector<uint8_t>& digests, const std::vector<int64_t>& keys) {
      std::set<int64_t> set;
      for (size_t s = 0; s < digests.size(); ++s) {
        if (digests[s]) set.insert(keys[s]);
      }
      return set;
    };
    expect(live(device.digests.host(), device.keys.host()) == live(host.digests, host.keys), "keys",
           capacity, batch);
  }
  std::printf("checked capacity %lld, batch %lld, %s: %lld keys, %lld evicted, %lld early\n",
              static_cast<long long>(capacity), static_cast<long long>(batch),
              in_order ? "in order" : "at once", static_cast<long long>(device.count(kSize)),
              static_cast<long long>(device.count(kEvicted)),
              static_cast<long long>(device.count(kEarly)));
}

__global__ void make_keys(int64_t* keys, int64_t count, int64_t first) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) keys[i] = static_cast<int64_t>(mix(static_cast<uint64_t>(first + i)));
}

// Different keys among the first `filled`: a stride that is odd and larger than count steps apart.
__global__ void choose_keys(int64_t* keys, int64_t count, int64_t filled, int64_t offset) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const int64_t step = filled / count;
  keys[i] = static_cast<int64_t>(mix(static_cast<uint64_t>(i * step + offset % step)));
}

constexpr int kDim = 8;

__global__ void assign(const Rows rows, const int64_t* slots, const float4* from, int64_t count) {
  const int64_t i = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) / 2;
  if (i >= count || slots[i] < 0) return;
  reinterpret_cast<float4*>(rows.values + slots[i] * rows.stride)[threadIdx.x % 2] =
      from[2 * i + threadIdx.x % 2];
}

template <class Run>
double seconds(int repeats, Run&& run) {
  cudaEvent_t begin, end;
  must(cudaEventCreate(&begin), "event");
  must(cudaEventCreate(&end), "event");
  run(0);
  must(cudaEventRecord(begin), "record");
  for (int r = 0; r < repeats; ++r) run(r + 1);
  must(cudaEventRecord(end), "record");
  must(cudaEventSynchronize(end), "synchronise");
  float milliseconds = 0;
  must(cudaEventElapsedTime(&milliseconds, begin, end), "elapsed");
  return milliseconds * 1e-3 / repeats;
}

unsigned blocks(int64_t threads) {
  return static_cast<unsigned>((threads + 255) / 256);
}

void time_all(int64_t capacity) {
  constexpr int64_t kBatch = 1 << 20;
  constexpr int kRepeats = 20;
  DeviceTable table(capacity);
  const Buffer<float> values(table.slots * kDim), out(kBatch * kDim), missing(kDim);
  const Buffer<int64_t> slots(kBatch);
  const Buffer<uint8_t> states(kBatch);
  const Rows rows{.values = values.data, .stride = kDim, .dim = kDim, .width = kDim};
  std::vector<std::unique_ptr<Buffer<int64_t>>> batches;
  for (int b = 0; b <= kRepeats; ++b) batches.push_back(std::make_unique<Buffer<int64_t>>(kBatch));
  std::printf("capacity %lld, dim %d, batches of %lld keys; G keys/s\n",
              static_cast<long long>(capacity), kDim, static_cast<long long>(kBatch));
  std::printf("%6s %8s %12s %12s %12s %12s %10s %8s\n", "load", "find", "find+gather", "find, none",
              "assign", "insert new", "evicted", "failed");
  uint32_t call = 0;
  int64_t filled = 0;
  const auto insert = [&](const int64_t* keys, int64_t count) {
    must(insert_cuda(insert_of(table.view, keys, count, ++call, false, slots.data, states.data),
                     nullptr),
         "insert");
  };
  const auto fill = [&](int64_t until) {
    while (filled < until) {
      const int64_t count = std::min(kBatch, until - filled);
      make_keys<<<blocks(count), 256>>>(batches[0]->data, count, filled);
      insert(batches[0]->data, count);
      filled += count;
    }
  };
  for (const double load : {0.5, 0.75, 0.95, 1.0}) {
    fill(static_cast<int64_t>(load * static_cast<double>(capacity)));
    const int64_t evicted = table.count(kEvicted), failed = table.count(kFailed);
    const auto choose = [&] {
      for (int b = 0; b <= kRepeats; ++b)
        choose_keys<<<blocks(kBatch), 256>>>(batches[b]->data, kBatch, filled, b * 7);
    };
    choose();
    const auto find = [&](int b) {
      must(find_cuda({.table = table.view,
                      .keys = batches[b]->data,
                      .count = kBatch,
                      .limit = nullptr,
                      .slots = slots.data},
                     nullptr),
           "find");
    };
    const double found = seconds(kRepeats, find);
    const double gathered = seconds(kRepeats, [&](int b) {
      find(b);
      must(gather_rows_cuda({.rows = rows,
                             .slots = slots.data,
                             .index = nullptr,
                             .count = kBatch,
                             .missing = missing.data,
                             .out = out.data},
                            nullptr),
           "gather");
    });
    const auto write = [&](int b) {
      insert(batches[b]->data, kBatch);
      assign<<<blocks(2 * kBatch), 256>>>(rows, slots.data,
                                          reinterpret_cast<const float4*>(out.data), kBatch);
    };
    const double assigned = seconds(kRepeats, write);
    for (int b = 0; b <= kRepeats; ++b) {
      make_keys<<<blocks(kBatch), 256>>>(batches[b]->data, kBatch,
                                         int64_t{1} << 60 | int64_t{b} << 30);
    }
    const double none = seconds(kRepeats, find);
    // New keys, as many as fit; at full load each evicts another. They are erased again for the next load.
    const int64_t room = (capacity - filled) / kBatch - 1;
    const int repeats =
        load < 1 ? static_cast<int>(std::clamp<int64_t>(room, 1, kRepeats)) : kRepeats;
    const double inserted = seconds(repeats, write);
    const double giga = kBatch * 1e-9;
    std::printf("%6.2f %8.2f %12.2f %12.2f %12.2f %12.2f %10lld %8lld\n", load, giga / found,
                giga / gathered, giga / none, giga / assigned, giga / inserted,
                static_cast<long long>(evicted), static_cast<long long>(failed));
    std::fflush(stdout);
    for (int b = 0; b <= kRepeats; ++b) {
      must(erase_cuda({.table = table.view,
                       .keys = batches[b]->data,
                       .count = kBatch,
                       .limit = nullptr,
                       .allowed = nullptr},
                      nullptr),
           "erase");
    }
  }
}

}  // namespace
}  // namespace seqfuse

int main(int argc, char** argv) {
  using namespace seqfuse;
  bool checks = argc < 2, times = argc < 2;
  int64_t capacity = int64_t{1} << 27;
  for (int i = 1; i < argc; ++i) {
    if (!std::strcmp(argv[i], "check")) checks = true;
    if (!std::strcmp(argv[i], "time")) times = true;
    if (std::atoll(argv[i]) > 0) capacity = std::atoll(argv[i]);
  }
  if (checks) {
    for (const bool in_order : {true, false}) {
      check(100, 30, 300, in_order);
      check(100, 200, 300, in_order);  // more than fit
      check(5000, 700, 20'000, in_order);
      check(100'000, 20'000, 40'000, in_order);
      check(300'000, 14'000, 1'000'000, in_order);
    }
    std::printf(failures ? "%d FAILED\n" : "all checks passed\n", failures);
  }
  if (times && failures == 0) time_all(capacity);
  return failures ? 1 : 0;
}
