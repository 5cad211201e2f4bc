#!/usr/bin/env bash
# seqfuse preprocess against programs for pandas, polars and DuckDB on synthesized KuaiRand-1K logs: seconds, CPU
# seconds, peak memory, one JSON line a run. The programs take turns, since machines are not equally fast all the time.
#
#   benchmarks/data/preprocess.sh [EVENTS...]      default: 2000000 20000000
#
# Environment: SEQFUSE (build/bin/seqfuse), PYTHON (python3, with the peers), PEERS ("pandas polars duckdb"; "" measures
# seqfuse alone), WORK (a scratch folder), RUNS (3).
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
SEQFUSE=${SEQFUSE:-$root/build/bin/seqfuse}
PYTHON=${PYTHON:-python3}
PEERS=${PEERS-pandas polars duckdb}
WORK=${WORK:-$(mktemp -d)}
RUNS=${RUNS:-3}

# measure NAME COMMAND...
measure() {
  local name=$1
  shift
  /usr/bin/time -o "$WORK/time" -f '%e %U %S %M' "$@" >"$WORK/output" 2>"$WORK/errors" ||
    { cat "$WORK/errors" >&2; exit 1; }
  read -r wall user system peak <"$WORK/time"
  printf '{"program": "%s", "events": %s, "seconds": %s, "cpu_seconds": %s, "peak_mib": %s}\n' \
    "$name" "$events" "$wall" "$(awk "BEGIN { print $user + $system }")" "$((peak / 1024))"
}

for events in "${@:-2000000 20000000}"; do
  for events in $events; do
    log=$WORK/kuairand-$events
    [ -d "$log" ] || "$SEQFUSE" synthesize --like kuairand-1k --events "$events" \
      --users $((events / 2000)) --output "$log" >&2
    cat "$(find "$log" -name 'log_standard*' | head -1)" >/dev/null
    for _ in $(seq "$RUNS"); do
      measure seqfuse "$SEQFUSE" preprocess --dataset-name kuairand-1k --input "$log" \
        --output "$WORK/dataset" --force --memory-limit 1GB
      for peer in $PEERS; do
        measure "$peer" "$PYTHON" "$root/benchmarks/data/preprocess_$peer.py" "$log" "$WORK/$peer.parquet"
      done
    done
  done
done
