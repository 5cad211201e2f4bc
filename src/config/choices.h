// Parameters with a fixed set of names, parsed once into an enumeration. choice_names(E) lists the
// names in the order of the enumerators, for parsing, printing and messages.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>

namespace seqfuse::config {

using Names = std::span<const std::string_view>;

enum class Architecture { hstu, hstu_research };
inline Names choice_names(Architecture) {
  static constexpr std::array<std::string_view, 2> names = {"hstu", "hstu_research"};
  return names;
}

// What a model predicts: labels of candidates, or the next item.
enum class Task { ranking, retrieval };
inline Names choice_names(Task) {
  static constexpr std::array<std::string_view, 2> names = {"ranking", "retrieval"};
  return names;
}

// The compute type on a GPU.
enum class ComputeType { bfloat16, float16, float32 };
inline Names choice_names(ComputeType) {
  static constexpr std::array<std::string_view, 3> names = {"bfloat16", "float16", "float32"};
  return names;
}

enum class SplitKind {
  leave_one_out,  // test: each user's last k events; validation: the k before them; train: the rest
  user,           // train: the first train_fraction of users; test: the others
  temporal,       // train: events before a cut in time; test: each user's first k events after it
};
inline Names choice_names(SplitKind) {
  static constexpr std::array<std::string_view, 3> names = {"leave_one_out", "user", "temporal"};
  return names;
}

// Which events of a user to keep if they exceed a window.
enum class Truncate {
  newest,  // those nearest to the predicted events
  oldest,  // leave_one_out, user: the user's later events are dropped, then the split is made;
           // temporal: training windows keep a user's first events
  random,  // training: any consecutive events, redrawn every epoch; evaluation: the newest
};
inline Names choice_names(Truncate) {
  static constexpr std::array<std::string_view, 3> names = {"newest", "oldest", "random"};
  return names;
}

enum class EvaluateOn { test, validation };
inline Names choice_names(EvaluateOn) {
  static constexpr std::array<std::string_view, 2> names = {"test", "validation"};
  return names;
}

// How far ahead batches are prepared: not at all, ahead, further ahead.
enum class Pipeline { none, native, prefetch };
inline Names choice_names(Pipeline) {
  static constexpr std::array<std::string_view, 3> names = {"none", "native", "prefetch"};
  return names;
}

// How to react to a failed checkpoint write.
enum class OnCheckpointError { stop, keep_training };
inline Names choice_names(OnCheckpointError) {
  static constexpr std::array<std::string_view, 2> names = {"stop", "continue"};
  return names;
}

// The only kernels; the name is a parameter so that files of other trainers load.
enum class KernelBackend { cutlass };
inline Names choice_names(KernelBackend) {
  static constexpr std::array<std::string_view, 1> names = {"cutlass"};
  return names;
}
// Why a name that other trainers accept is refused; "" for other names.
std::string_view why_refused(KernelBackend, std::string_view name);

// How several processes share the rows of an embedding table.
enum class Sharding {
  by_size,         // sharded if the table is large
  data_parallel,   // every process has all rows
  model_parallel,  // every process has the rows of its ids
};
inline Names choice_names(Sharding) {
  static constexpr std::array<std::string_view, 3> names = {"auto", "data_parallel",
                                                            "model_parallel"};
  return names;
}

// The same for a dynamic table, which is always sharded.
enum class DynamicSharding { model_parallel };
inline Names choice_names(DynamicSharding) {
  static constexpr std::array<std::string_view, 1> names = {"model_parallel"};
  return names;
}

// The rows that a full dynamic table evicts: those unused for longest, or used least often.
enum class EvictStrategy { lru, lfu };
inline Names choice_names(EvictStrategy) {
  static constexpr std::array<std::string_view, 2> names = {"lru", "lfu"};
  return names;
}

// Which process owns an id of a dynamic table.
enum class IdDistribution {
  continuous,       // a block of ids each
  roundrobin,       // id modulo the number of processes
  hash_roundrobin,  // a hash of the id modulo the number of processes
};
inline Names choice_names(IdDistribution) {
  static constexpr std::array<std::string_view, 3> names = {"continuous", "roundrobin",
                                                            "hash_roundrobin"};
  return names;
}

// The items that a retrieval loss compares the target with. full: the whole catalogue.
enum class Negatives { in_batch, uniform, full };
inline Names choice_names(Negatives) {
  static constexpr std::array<std::string_view, 3> names = {"in_batch", "uniform", "full"};
  return names;
}

enum class Activation { relu, gelu };
inline Names choice_names(Activation) {
  static constexpr std::array<std::string_view, 2> names = {"relu", "gelu"};
  return names;
}

// The update rule of weights (embeddings/update/update_step.h).
enum class OptimizerKind { adamw, adam, sgd, row_wise_adagrad };
inline Names choice_names(OptimizerKind) {
  static constexpr std::array<std::string_view, 4> names = {"adamw", "adam", "sgd",
                                                            "row_wise_adagrad"};
  return names;
}

enum class LearningRateSchedule { constant, cosine };
inline Names choice_names(LearningRateSchedule) {
  static constexpr std::array<std::string_view, 2> names = {"constant", "cosine"};
  return names;
}

enum class Distribution { uniform, normal, zipf, lognormal };
inline Names choice_names(Distribution) {
  static constexpr std::array<std::string_view, 4> names = {"uniform", "normal", "zipf",
                                                            "lognormal"};
  return names;
}

template <class E>
concept Choice = std::is_enum_v<E> && requires(E value) { choice_names(value); };

template <Choice E>
std::string_view name_of(E value) {
  return choice_names(value)[static_cast<size_t>(value)];
}

// The choice with this name, if any.
template <Choice E>
std::optional<E> find_choice(std::string_view name) {
  const Names names = choice_names(E{});
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) return std::nullopt;
  return static_cast<E>(found - names.begin());
}

}  // namespace seqfuse::config
