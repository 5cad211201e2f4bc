#!/usr/bin/env python3
"""Which fusions pay, by recorded times of `seqfuse tune`: each segment beside its operators alone, in Markdown.

usage: benchmarks/fusion/which_pay.py TIMES.csv [--json FILE]

saved: microseconds a layer that the segment takes less than the best cover of it by smaller segments (alone: than its
operators one by one). bytes: those of the intermediate tensors that need not be written and read again, in MB. at
memory speed: what moving these bytes takes at --tb-per-second. in programs: the median difference, over pairs of
recorded programs that differ in this segment and its operators alone only, a layer. Segments that ran as smaller ones
are marked: pieces.
"""

import argparse
import csv
import json
import pathlib
import statistics

NAMES = ["gemm0", "bias0+split", "QK", "mask", "softmax", "PV", "transpose", "gemm1", "bias1+residual", "LN1", "gemm2",
         "bias2+GELU", "gemm3", "bias3+residual", "LN2"]  # fmt: skip
OPS = len(NAMES)


def segments_of(scheme: int) -> tuple[tuple[int, int], ...]:
    bits, first, found = f"{scheme:016b}"[1:], 0, []
    for op in range(OPS):
        if op == OPS - 1 or bits[op + 1] != bits[op]:
            found.append((first, op))
            first = op + 1
    return tuple(found)


def output_bytes(row: dict) -> list[float]:
    """Of each operator's result, float16 or as the dtype says."""
    size = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}[row["dtype"]]
    tokens = int(row["batch"]) * int(row["seq"])
    hidden, inner = int(row["hidden"]), int(row["inner"])
    scores = int(row["heads"]) * tokens * int(row["seq"])
    wide = {"gemm0": 3 * hidden, "bias0+split": 3 * hidden, "gemm2": inner, "bias2+GELU": inner}
    return [size * (scores if name in ("QK", "mask", "softmax") else tokens * wide.get(name, hidden)) for name in NAMES]


def best_covers(times: dict) -> dict:
    """(first, last): the least sum of two or more segments that cover it."""
    best, covers = {}, {}
    for length in range(1, OPS + 1):
        for first in range(OPS - length + 1):
            last = first + length - 1
            splits = [
                best[first, at] + best[at + 1, last]
                for at in range(first, last)
                if (first, at) in best and (at + 1, last) in best
            ]
            if splits:
                covers[first, last] = min(splits)
            found = [*splits, *([times[first, last]] if (first, last) in times else [])]
            if found:
                best[first, last] = min(found)
    return covers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("times", type=pathlib.Path)
    parser.add_argument("--tb-per-second", type=float, default=3.8, help="of a copy (encoder_kernel_bench)")
    parser.add_argument("--json", type=pathlib.Path)
    args = parser.parse_args()
    with args.times.open(newline="") as table:
        rows = [row for row in csv.DictReader(table) if row["milliseconds"]]
    times, pieces, programs = {}, set(), {}
    for row in rows:
        plain = row["config"] == "" or row["config"].startswith("fallback")
        if row["first"] and plain:
            segment = int(row["first"]), int(row["last"])
            times[segment] = 1000 * float(row["milliseconds"])
            if "pieces" in row["config"]:
                pieces.add(segment)
        elif row["scheme"] and plain:
            layers = int(row["layers"])
            programs[segments_of(int(row["scheme"]))] = 1000 * float(row["milliseconds"]) / layers
    outputs, covers, report = output_bytes(rows[0]), best_covers(times), []
    for (first, last), time in sorted(times.items()):
        if first == last:
            continue
        alone = sum(times[op, op] for op in range(first, last + 1))
        moved = 2 * sum(outputs[first:last]) / 1e6
        singles = tuple((op, op) for op in range(first, last + 1))
        differences = []
        for segments, of in programs.items():
            if (first, last) in segments:
                at = segments.index((first, last))
                apart = segments[:at] + singles + segments[at + 1 :]
                if apart in programs:
                    differences.append(programs[apart] - of)
        report.append({
            "segment": " ".join(NAMES[first : last + 1]), "pieces": (first, last) in pieces, "us": time,
            "alone_us": alone, "best_cover_us": covers[first, last], "moved_mb": moved,
            "moved_us": moved / args.tb_per_second,
            "in_programs_us": statistics.median(differences) if differences else None, "pairs": len(differences),
        })  # fmt: skip
    columns = ["segment", "µs", "operators alone", "times", "best smaller ones", "bytes saved, MB",
               "at memory speed, µs", "saved in programs, µs"]  # fmt: skip
    print("| " + " | ".join(columns) + " |\n" + "|---" * len(columns) + "|")
    for row in sorted(report, key=lambda row: row["us"] - row["best_cover_us"]):
        within = "" if row["in_programs_us"] is None else f"{row['in_programs_us']:.1f} ({row['pairs']})"
        name = row["segment"] + (" (pieces)" if row["pieces"] else "")
        print(f"| {name} | {row['us']:.1f} | {row['alone_us']:.1f} | {row['alone_us'] / row['us']:.2f} | "
              f"{row['best_cover_us']:.1f} | {row['moved_mb']:.1f} | {row['moved_us']:.1f} | {within} |")  # fmt: skip
    if args.json:
        args.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
