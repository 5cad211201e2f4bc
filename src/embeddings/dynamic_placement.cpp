#include "embeddings/dynamic_placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/progress.h"
#include "embeddings/dynamic/memory_plan.h"

namespace seqfuse::embeddings {
namespace {

IdDealing dealing_of(const DynamicPlacement& dynamic, int64_t num_rows) {
  IdDealing dealing{.range = num_rows};
  if (dynamic.dist_type == "roundrobin") dealing.kind = IdDealing::Kind::modulo;
  if (dynamic.dist_type == "continuous") dealing.kind = IdDealing::Kind::continuous;
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

// Logs what a process's table takes. Throws Error, saying what would fit, if it is more than is free.
void check_memory(const DynamicRowsOptions& options, const MemoryPlan& plan) {
  const HashTableOptions& table = options.table;
  log::info("train", "table {}: up to {} rows of {}: {} of {} memory{}", table.name, table.capacity,
            bytes_text(plan.row_bytes), bytes_text(plan.device_bytes),
            table.device.is_cuda() ? "GPU" : "this machine's",
            plan.host_bytes > 0
                ? fmt::format(" and {} of pinned memory", bytes_text(plan.host_bytes))
                : "");
  const std::string why = why_memory_does_not_suffice(plan, free_memory(table.device));
  SEQFUSE_CHECK(why.empty(), "table {}: {}", table.name, why);
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
  table.score = dynamic.evict_strategy == "lfu" ? Score::lfu : Score::lru;
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
  check_memory(options, plan_memory(options.table, capacity));
  return std::make_shared<DynamicTable>(std::move(options), num_rows, *placement.group,
                                        dealing_of(dynamic, num_rows));
}

}  // namespace seqfuse::embeddings
