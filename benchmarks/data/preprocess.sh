#!/usr/bin/env bash
# seqfuse preprocess against the pandas program on synthesized KuaiRand-1K logs: seconds, CPU seconds, peak memory.
#
#   benchmarks/data/preprocess.sh [EVENTS...]      default: 2000000 20000000
#
# Environment: SEQFUSE (build/bin/seqfuse), PYTHON (python3, with pandas), WORK (a scratch folder),
# RUNS (3: the fastest counts), SKIP_PANDAS (1: measure seqfuse alone).
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
SEQFUSE=${SEQFUSE:-$root/build/bin/seqfuse}
PYTHON=${PYTHON:-python3}
WORK=${WORK:-$(mktemp -d)}
RUNS=${RUNS:-3}

# measure NAME COMMAND...: one JSON line of the fastest of RUNS runs.
measure() {
  local name=$1 best=""
  shift
  for _ in $(seq "$RUNS"); do
    /usr/bin/time -o "$WORK/time" -f '%e %U %S %M' "$@" >"$WORK/output" 2>"$WORK/errors" ||
      { cat "$WORK/errors" >&2; exit 1; }
    best=$(printf '%s\n%s\n' "$best" "$(cat "$WORK/time")" | grep . | sort -n | head -1)
  done
  read -r wall user system peak <<<"$best"
  printf '{"program": "%s", "events": %s, "seconds": %s, "cpu_seconds": %s, "peak_mib": %s}\n' \
    "$name" "$events" "$wall" "$(awk "BEGIN { print $user + $system }")" "$((peak / 1024))"
}

for events in "${@:-2000000 20000000}"; do
  for events in $events; do
    log=$WORK/kuairand-$events
    [ -d "$log" ] || "$SEQFUSE" synthesize --like kuairand-1k --events "$events" \
      --users $((events / 2000)) --output "$log" >&2
    cat "$(find "$log" -name 'log_standard*' | head -1)" >/dev/null
    measure seqfuse "$SEQFUSE" preprocess --dataset-name kuairand-1k --input "$log" \
      --output "$WORK/dataset" --force --memory-limit 1GB
    [ "${SKIP_PANDAS:-0}" = 1 ] ||
      measure pandas "$PYTHON" "$root/benchmarks/data/preprocess_pandas.py" "$log" "$WORK/pandas.parquet"
  done
done
