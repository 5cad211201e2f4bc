#include "embeddings/dynamic_placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/progress.h"
#include "embeddings/dynamic/memory_plan.h"

namespace seqfuse::embeddings {
namespace {

IdDealing dealing_of(const DynamicPlacement& dynamic, int64_t num_rows) {
  IdDealing dealing{.range = num_rows};
  switch (dynamic.dist_type) {
    case config::IdDistribution::continuous:
      dealing.kind = IdDealing::Kind::continuous;
      break;
    case config::IdDistribution::roundrobin:
      dealing.kind = IdDealing::Kind::modulo;
      break;
    case config::IdDistribution::hash_roundrobin:
      dealing.kind = IdDealing::Kind::hashed;
      break;
  }
  return dealing;
}

// Rows of one process in the memory of its GPU.
int64_t rows_on_gpu(const DynamicPlacement& dynamic, int64_t capacity, int64_t row_bytes,
                    int64_t processes) {
  if (dynamic.bytes_on_gpu) return *dynamic.bytes_on_gpu / processes / row_bytes;
  if (dynamic.rows_on_gpu) return *dynamic.rows_on_gpu / processes;
  if (dynamic.share_on_gpu) {
    return static_cast<int64_t>(std::ceil(*dynamic.share_on_gpu * static_cast<double>(capacity)));
  }
  return std::numeric_limits<int64_t>::max();
}

std::string bytes_text(int64_t bytes) {
  return format_count(static_cast<double>(bytes)) + "B";
}

std::string bytes_text(const MemoryPlan& plan, const MemoryBytes& bytes) {
  return fmt::format(
      "{} of {} memory{}", bytes_text(bytes.device), plan.on_gpu() ? "GPU" : "this machine's",
      bytes.host > 0 ? fmt::format(" and {} of pinned memory", bytes_text(bytes.host)) : "");
}

// The tables of this process and what they take once they are full, so that all of them fit together.
class PlannedTables {
 public:
  void add(const std::shared_ptr<DynamicTable>& table, const MemoryPlan& plan) {
    const std::lock_guard lock(mutex_);
    std::erase_if(tables_, [](const auto& entry) { return entry.first.expired(); });
    tables_.emplace_back(table, plan);
  }

  // What those on this device may still take.
  MemoryBytes left(at::Device device) {
    const std::lock_guard lock(mutex_);
    MemoryBytes sum;
    for (const auto& [held, plan] : tables_) {
      const std::shared_ptr<DynamicTable> table = held.lock();
      if (!table || plan.options.device.type() != device.type()) continue;
      const MemoryBytes more = plan.left(table->dynamic_rows().table());
      if (plan.options.device == device) sum.device += more.device;
      sum.host += more.host;
    }
    return sum;
  }

 private:
  std::mutex mutex_;
  std::vector<std::pair<std::weak_ptr<DynamicTable>, MemoryPlan>> tables_;
};

PlannedTables& planned_tables() {
  static PlannedTables tables;
  return tables;
}

// Logs what a process's table takes. Throws Error, saying what would fit, if it is more than is free and
// not needed by other tables. If there is no room for growing, the table is to be allocated whole.
void check_memory(HashTableOptions& table, const MemoryPlan& plan) {
  const MemoryBytes others = planned_tables().left(table.device);
  MemoryBytes free = free_memory(table.device);
  free = {.device = std::max<int64_t>(0, free.device - others.device),
          .host = std::max<int64_t>(0, free.host - others.host)};
  const bool must_grow = table.initial_capacity < plan.options.capacity;
  const bool whole = must_grow && !can_grow(plan, free);
  log::info("train", "table {}: up to {} rows of {}: {}{}", table.name, table.capacity,
            bytes_text(plan.row_bytes), bytes_text(plan, plan.full),
            whole ? ", allocated at once, since there is no room to grow"
                  : (must_grow ? fmt::format("; at most {} while it grows",
                                             bytes_text(plan, plan.growing))
                               : ""));
  const std::string why = why_memory_does_not_suffice(plan, free);
  SEQFUSE_CHECK(why.empty(), "table {}: {}{}", table.name, why,
                others.device + others.host > 0
                    ? fmt::format("\n  other tables may still take {}", bytes_text(plan, others))
                    : "");
  if (whole) table.initial_capacity = plan.options.capacity;
}

}  // namespace

DynamicRowsOptions dynamic_options(const std::string& name, int64_t num_rows, int64_t dim,
                                   const InitialRows& initial, const DynamicPlacement& dynamic,
                                   const Placement& placement) {
  DynamicRowsOptions options;
  HashTableOptions& table = options.table;
  options.optimizer = row_optimizer(dynamic.optimizer);
  table.name = name;
  table.capacity = std::min(dynamic.capacity, num_rows);
  table.dim = dim;
  table.state = ops::hash_table::state_length(options.optimizer, dim);
  table.score = dynamic.evict_strategy == config::EvictStrategy::lfu ? Score::lfu : Score::lru;
  table.in_order = at::globalContext().deterministicAlgorithms();
  table.device = placement.device;
  if (placement.device.is_cuda()) {
    const int64_t processes = placement.group->size();
    const int64_t capacity = capacity_of_process(table.capacity, processes);
    const int64_t rows =
        rows_on_gpu(dynamic, capacity, plan_memory(table, capacity).row_bytes, processes);
    table.cached = dynamic.caching;
    table.device_rows = std::max<int64_t>(rows, dynamic.caching ? 1 : 0);
    // A cache that holds all rows would only be a second copy.
    if (table.cached && table.device_rows >= capacity) table.cached = false;
  }
  RowInit& init = table.init;
  if (initial.normal) {
    init = {.kind = RowInit::truncated_normal, .b = initial.spread, .lower = -2, .upper = 2};
  } else {
    init = {.kind = RowInit::uniform, .a = -initial.spread, .b = initial.spread};
  }
  // Tables of the same width have different rows.
  init.seed = ops::hash_table::mix(placement.seed);
  for (const char letter : name) {
    init.seed = ops::hash_table::mix(init.seed ^ static_cast<uint64_t>(letter));
  }
  return options;
}

std::shared_ptr<EmbeddingTable> make_dynamic_table(const std::string& name, int64_t num_rows,
                                                   int64_t dim, const InitialRows& initial,
                                                   const DynamicPlacement& dynamic,
                                                   const Placement& placement) {
  DynamicRowsOptions options = dynamic_options(name, num_rows, dim, initial, dynamic, placement);
  const int64_t processes = placement.group->size();
  const int64_t capacity = capacity_of_process(options.table.capacity, processes);
  const MemoryPlan plan = plan_memory(options.table, capacity);
  check_memory(options.table, plan);
  auto table = std::make_shared<DynamicTable>(std::move(options), num_rows, *placement.group,
                                              dealing_of(dynamic, num_rows));
  planned_tables().add(table, plan);
  return table;
}

}  // namespace seqfuse::embeddings
