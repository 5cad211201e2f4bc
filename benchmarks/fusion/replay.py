#!/usr/bin/env python3
"""Searches among recorded times of all programs: how much slower than the fastest is what each of them finds.

usage: SEQFUSE_BINARY=build/bin/seqfuse benchmarks/fusion/replay.py TIMES.csv... [--seeds 5] [--budget 14]
           [--output replay.json]

TIMES.csv: an exhaustive search of one setting (tune_cells.py). Needs no GPU. Each search measures --budget programs
(14 of 720 are 1.9 %). The hand-written default is measured first by all of them, so that a setting in which it is
the fastest says nothing: `without default` leaves it out of the record.

`boosted, whole programs` is the default search without times of segments. `sums alone` measures no program for the
choice: the program with the least sum of segments; with `of K` the fastest of the K least sums.
"""

import argparse
import csv
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from recorded_cells import provenance  # noqa: E402

DEFAULT = 40811  # the scheme of the hand-written default
OPS = 15


def segments_of(scheme: int) -> list[tuple[int, int]]:
    """(first, last) operator of each: characters 1 to 15, equal neighbours together."""
    bits, first, found = f"{scheme:016b}"[1:], 0, []
    for op in range(OPS):
        if op == OPS - 1 or bits[op + 1] != bits[op]:
            found.append((first, op))
            first = op + 1
    return found


def replay(rows: list[dict], search: str, seed: int, budget: int) -> dict:
    setting = rows[0]
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "times.csv"
        with file.open("w", newline="") as output:
            writer = csv.DictWriter(output, setting.keys(), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
        command = [os.environ.get("SEQFUSE_BINARY", "seqfuse"), "tune", setting["model"], "--batch", setting["batch"]]
        command += ["--seq", setting["seq"], "--replay", str(file), "--search", search, "--seed", str(seed)]
        command += ["--budget", str(budget), "--no-tiles", "--json"]
        for mask in setting["mask"].split("+"):
            command += ["--mask", mask]
        return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def by_sums(rows: list[dict]) -> dict:
    """Regrets of the programs with the least sums of segments, and how far sums are off."""
    segments = {
        (int(r["first"]), int(r["last"])): float(r["milliseconds"]) for r in rows if r["first"] and r["milliseconds"]
    }
    layers, sums, times = int(rows[0]["layers"]), {}, {}
    for row in rows:
        if not row["scheme"] or not row["milliseconds"]:
            continue
        scheme = int(row["scheme"])
        times.setdefault(scheme, []).append(float(row["milliseconds"]))
        parts = [segments.get(segment) for segment in segments_of(scheme)]
        if None not in parts:
            sums[scheme] = layers * sum(parts)
    times = {scheme: statistics.median_low(of) for scheme, of in times.items()}
    best = min(times.values())
    order = sorted((scheme for scheme in sums if scheme in times), key=sums.get)
    errors = [abs(sums[scheme] / times[scheme] - 1) for scheme in order]
    found = {f"of {k}": min(times[scheme] for scheme in order[:k]) / best - 1 for k in (1, 2, 5, 14)}
    return {
        "regret": found,
        "sum against program": {"median": statistics.median(errors), "largest": max(errors)},
        "programs": len(order),
    }


def searches_of(rows: list[dict], seeds: int, budget: int) -> dict:
    programs_only = [row for row in rows if row["scheme"]]
    ways = {
        "boosted": ("boosted", rows),
        "boosted, whole programs": ("boosted", programs_only),
        "random": ("random", rows),
        "annealing": ("annealing", rows),
    }
    found: dict = {"sums alone": by_sums(rows), "regret": {}}
    for name, (search, record) in ways.items():
        results = [replay(record, search, seed, budget) for seed in range(1, seeds + 1)]
        found["regret"][name] = [result["regret"] for result in results]
        found["recorded"], found["fastest"] = results[0]["recorded"], results[0]["fastest_scheme"]
        found["fastest_milliseconds"] = results[0]["fastest_milliseconds"]
    return found


def percent(values: list[float]) -> str:
    return ", ".join(f"{100 * value:.2f}" for value in values)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("times", nargs="+", type=pathlib.Path)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--budget", type=int, default=14)
    parser.add_argument("--output", type=pathlib.Path)
    args = parser.parse_args()
    report = {**provenance(), "budget": args.budget, "settings": {}}
    for file in args.times:
        with file.open(newline="") as table:
            rows = list(csv.DictReader(table))
        without = [row for row in rows if row["scheme"] != str(DEFAULT)]
        name = f"{rows[0]['model']} {rows[0]['batch']}x{rows[0]['seq']} {rows[0]['mask']}"
        report["settings"][name] = {}
        for which, record in (("all programs", rows), ("without default", without)):
            found = searches_of(record, args.seeds, args.budget)
            report["settings"][name][which] = found
            print(f"{name}, {which}: {found['recorded']} programs, fastest {found['fastest']}")
            for search, regrets in found["regret"].items():
                print(f"  {search}: slower by {percent(regrets)} %")
            sums = found["sums alone"]
            print(f"  sums alone: {', '.join(f'{of} {100 * value:.2f}' for of, value in sums['regret'].items())} %")
    if args.output:
        args.output.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
