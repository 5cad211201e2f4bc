#include "data/batch/batch.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <numeric>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "base/random.h"

namespace seqfuse::data {

Batch make_batch(const Dataset& dataset, const Sample* samples, int64_t count, int64_t index) {
  dataset.check_unchanged(samples, count);
  Batch batch;
  batch.index = index;
  batch.users.reserve(count);
  batch.num_candidates.reserve(count);
  batch.offsets.reserve(count + 1);
  batch.offsets.push_back(0);
  for (const Sample& sample : std::span(samples, count)) {
    const int64_t events = std::ssize(dataset.user(sample.user).items);
    SEQFUSE_CHECK(0 <= sample.begin && sample.begin <= sample.end && sample.end <= events &&
                      sample.num_candidates <= sample.end - sample.begin,
                  "window [{}, {}) with {} candidates does not fit the {} events of user {}",
                  sample.begin, sample.end, sample.num_candidates, events, sample.user);
    batch.users.push_back(sample.user);
    batch.num_candidates.push_back(sample.num_candidates);
    batch.offsets.push_back(batch.offsets.back() + sample.end - sample.begin);
  }
  batch.items.reserve(batch.num_events());
  const auto append_window = [](std::vector<int64_t>& out, std::span<const int64_t> events,
                                const Sample& sample) {
    const auto window = events.subspan(sample.begin, sample.end - sample.begin);
    out.insert(out.end(), window.begin(), window.end());
  };
  for (const Sample& sample : std::span(samples, count)) {
    const UserSequence user = dataset.user(sample.user);
    append_window(batch.items, user.items, sample);
    if (!user.actions.empty()) append_window(batch.actions, user.actions, sample);
    if (!user.timestamps.empty()) append_window(batch.timestamps, user.timestamps, sample);
  }
  batch.context.resize(dataset.manifest().context.size());
  for (size_t feature = 0; feature < batch.context.size(); ++feature) {
    batch.context[feature].reserve(count);
    for (const int64_t user : batch.users) {
      batch.context[feature].push_back(dataset.context(static_cast<int64_t>(feature), user));
    }
  }
  return batch;
}

// Workers claim batch numbers in order and put finished batches into a ring of `prefetch` slots,
// which next() empties in order.
struct BatchLoader::State {
  struct Slot {
    std::optional<Batch> batch;
    std::exception_ptr failure;
  };

  State(const Dataset& dataset_in, const std::vector<Sample>& samples_in,
        const LoaderOptions& options_in, int64_t epoch_in, int64_t first_batch)
      : dataset(dataset_in),
        samples(samples_in),
        options(options_in),
        epoch(static_cast<uint64_t>(epoch_in)),
        end(batches_per_epoch(std::ssize(samples_in), options_in)),
        taken(first_batch),
        claimed(first_batch) {}

  ~State() {
    {
      const std::lock_guard lock(mutex);
      stopping = true;
    }
    space.notify_all();
    workers.clear();  // joins
  }

  Batch make(int64_t index) const {
    const int64_t begin = index * options.batch_size;
    const int64_t count = std::min(options.batch_size, std::ssize(samples) - begin);
    std::vector<Sample> chosen;
    chosen.reserve(count);
    for (int64_t i = begin; i < begin + count; ++i) {
      chosen.push_back(samples[order.empty() ? i : order[i]]);
      shift(chosen.back());
    }
    if (options.choose) {
      std::vector<Sample> part;
      for (const int64_t place : options.choose(chosen)) part.push_back(chosen[place]);
      chosen = std::move(part);
    }
    return make_batch(dataset, chosen.data(), std::ssize(chosen), index);
  }

  // Depends only on seed, user and epoch, so it does not depend on the batching.
  void shift(Sample& sample) const {
    if (sample.slack == 0) return;
    const Philox random{options.seed, hash64("begin of a window", epoch)};
    const int64_t earlier = Philox::below(random(static_cast<uint64_t>(sample.user))[0],
                                          static_cast<uint32_t>(sample.slack + 1));
    sample.begin -= earlier;
    sample.end -= earlier;
    sample.slack = 0;
  }

  Slot& slot(int64_t index) { return slots[index % std::ssize(slots)]; }

  void work() {
    std::unique_lock lock(mutex);
    for (;;) {
      space.wait(lock,
                 [&] { return stopping || claimed == end || claimed < taken + std::ssize(slots); });
      if (stopping || claimed == end) return;
      const int64_t index = claimed++;
      lock.unlock();
      Slot made;
      try {
        made.batch = make(index);
      } catch (...) {
        made.failure = std::current_exception();
      }
      lock.lock();
      slot(index) = std::move(made);
      ready.notify_one();
    }
  }

  const Dataset& dataset;
  const std::vector<Sample>& samples;
  const LoaderOptions options;
  const uint64_t epoch;
  const int64_t end;           // batches in the epoch
  std::vector<int64_t> order;  // order of samples; empty: unchanged

  std::mutex mutex;
  std::condition_variable space;  // a slot became free
  std::condition_variable ready;  // a slot was filled
  int64_t taken;                  // batches returned by next()
  int64_t claimed;                // batches started by workers
  bool stopping = false;
  std::vector<Slot> slots;  // empty without workers
  std::vector<std::jthread> workers;
};

BatchLoader::BatchLoader(const Dataset& dataset, const std::vector<Sample>& samples,
                         const LoaderOptions& options, int64_t epoch, int64_t first_batch) {
  SEQFUSE_CHECK_AS(UsageError, options.batch_size >= 1, "batch size is {}; it must be 1 or more",
                   options.batch_size);
  SEQFUSE_CHECK(first_batch >= 0, "first batch is {}; it must be 0 or more", first_batch);
  const int64_t end = batches_per_epoch(std::ssize(samples), options);
  state_ = std::make_unique<State>(dataset, samples, options, epoch, std::min(first_batch, end));
  if (options.shuffle) {
    state_->order.resize(samples.size());
    std::iota(state_->order.begin(), state_->order.end(), 0);
    Random random(options.seed, hash64("order of samples", state_->epoch));
    random.shuffle(state_->order);
  }
  const int64_t left = state_->end - state_->taken;
  const int64_t threads = std::min<int64_t>(options.threads, left);
  if (threads <= 0) return;
  state_->slots.resize(std::min(left, std::max(options.prefetch, threads)));
  for (int64_t i = 0; i < threads; ++i) state_->workers.emplace_back([&] { state_->work(); });
}

BatchLoader::~BatchLoader() = default;

int64_t BatchLoader::batches_per_epoch(int64_t samples, const LoaderOptions& options) {
  return options.drop_last ? samples / options.batch_size
                           : (samples + options.batch_size - 1) / options.batch_size;
}

std::optional<Batch> BatchLoader::next() {
  State& state = *state_;
  if (state.workers.empty()) {
    if (state.taken == state.end) return std::nullopt;
    Batch batch = state.make(state.taken);
    ++state.taken;
    return batch;
  }
  std::unique_lock lock(state.mutex);
  if (state.taken == state.end) return std::nullopt;
  State::Slot& slot = state.slot(state.taken);
  state.ready.wait(lock, [&] { return slot.batch || slot.failure; });
  if (slot.failure) std::rethrow_exception(slot.failure);  // again on every later call
  Batch batch = std::move(*slot.batch);
  slot.batch.reset();
  ++state.taken;
  lock.unlock();
  state.space.notify_one();
  return batch;
}

}  // namespace seqfuse::data
