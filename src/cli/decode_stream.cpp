#include "cli/decode_stream.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/ids_file.h"
#include "serving/decoding/stream_speed.h"

namespace seqfuse::cli {
using nlohmann::json;

void print_stream(const DecodingFlags& decoding, const StreamFlags& flags,
                  const std::function<bool()>& interrupted) {
  SEQFUSE_CHECK_AS(UsageError, !flags.ids_file.empty(),
                   "bench decode --stream needs --ids-file: the text that is repeated");
  const auto config = open_config(decoding);
  const auto ids = read_ids(flags.ids_file);
  SEQFUSE_CHECK_AS(DataError, !ids.empty(), "{}: it has no ids", flags.ids_file);
  serving::StreamOptions options{.tokens = flags.tokens,
                                 .part = std::min(serving::part_for(std::ssize(ids)), flags.tokens),
                                 .interrupted = interrupted};
  const kv_cache::Rule rule = cache_rule(decoding, config, flags.tokens);
  const auto model = open_model(decoding, "bench", config, rule, 1);
  if (!flags.json) {
    fmt::print("{:>9} {:>9} {:>10} {:>14}\n", "tokens", "TPOT ms", "loss", "bytes in use");
    options.on_part = [](const serving::StreamPart& part) {
      fmt::print("{:>9} {:>9.4g} {:>10.6f} {:>14}\n", part.end, part.seconds * 1e3, part.loss,
                 part.memory);
      std::fflush(stdout);
    };
  }
  const auto parts = serving::measure_stream(model, rule, ids, options);
  const auto spread = serving::spread_of(parts, rule, options.part);
  const bool flat = spread.is_flat(model.device());
  if (!flags.json) {
    fmt::print(
        "{}: the {} parts after the cache was full differ by {:.2f} % in time, {:.6f} in loss, {} "
        "bytes\n",
        flat ? "flat" : "not flat", spread.parts, 100 * spread.seconds, spread.loss, spread.memory);
    return;
  }
  json rows = json::array();
  for (const auto& part : parts) {
    rows.push_back({{"tokens", part.end},
                    {"tpot_ms", part.seconds * 1e3},
                    {"loss", part.loss},
                    {"bytes_in_use", part.memory}});
  }
  const json report = {{"model", decoding.shape.empty() ? decoding.model : decoding.shape},
                       {"device", model.device().str()},
                       {"dtype", c10::toString(model.dtype())},
                       {"cache", rule.text()},
                       {"part", options.part},
                       {"parts", std::move(rows)},
                       {"spread",
                        {{"parts", spread.parts},
                         {"time", spread.seconds},
                         {"loss", spread.loss},
                         {"bytes", spread.memory}}},
                       {"flat", flat}};
  fmt::print("{}\n", report.dump(1));
}

}  // namespace seqfuse::cli
