#!/usr/bin/env python3
"""`seqfuse tune` over shapes and masks, for a BERT of random weights: plans, times, and measurements as CSV.

usage: SEQFUSE_BINARY=build/bin/seqfuse benchmarks/fusion/tune_cells.py --folder FOLDER --output tuned.json
           [--resume] [--until SECONDS] [--model base] [--cases 1x128,...] [--masks causal,...] [-- FLAGS OF TUNE]
       ... --cases 1x128 --masks none -- --exhaustive --no-tiles

FOLDER gets for each cell MODEL-BxN-MASK.json, the plan, and .csv, all measurements with card, driver and version
(--replay of `seqfuse tune` reads them). The JSON has what `seqfuse tune --json` prints and the seconds of the whole
command, loading of the model and start of the measuring process included. Searches begin with nothing, except that
kernels generated before are in the cache; --cold empties it before each search.
"""

import argparse
import csv
import json
import os
import pathlib
import shlex
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time

BENCHMARKS = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(BENCHMARKS), str(BENCHMARKS / "encoder")]
from cells import MASKS, file_name, split_cases, split_masks  # noqa: E402
from recorded_cells import RecordedCells  # noqa: E402


def write_model(name: str, positions: int, folder: pathlib.Path, dtype: str) -> pathlib.Path:
    import torch  # noqa: PLC0415
    from plain_bert import SHAPES, make_model, write_checkpoint  # noqa: PLC0415

    model = folder / f"bert-{name}"
    model.mkdir()
    write_checkpoint(make_model(SHAPES[name], positions), SHAPES[name], positions, model, getattr(torch, dtype))
    return model


def write_csv(database: pathlib.Path, file: pathlib.Path) -> None:
    """The columns of measurement_csv.h."""
    with sqlite3.connect(database) as connection:
        found = connection.execute("SELECT * FROM measurements ORDER BY id")
        names = [column[0] for column in found.description]
        with file.open("w", newline="") as output:
            writer = csv.writer(output, lineterminator="\n")
            writer.writerow(names[1:])
            writer.writerows(row[1:] for row in found)


def tune(model: pathlib.Path, args, batch: int, length: int, mask: str, work: pathlib.Path) -> dict:
    at = args.folder / file_name(args.model, batch, length, mask)
    database, cache = work / f"{at.name}.db", work / "kernels"
    if args.cold:
        shutil.rmtree(cache, ignore_errors=True)
    binary = os.environ.get("SEQFUSE_BINARY", "seqfuse")
    command = [binary, "tune", str(model), "--batch", str(batch), "--seq", str(length), "--mask", mask]
    command += ["--database", str(database), "--output", f"{at}.json", "--json", *args.flags]
    start = time.perf_counter()
    run = subprocess.run(
        command, env={**os.environ, "SEQFUSE_KERNEL_CACHE": str(cache)}, capture_output=True, text=True, check=False
    )
    seconds = time.perf_counter() - start
    if run.returncode != 0:
        raise SystemExit(f"{shlex.join(command)} ended with {run.returncode}:\n{run.stderr[-2000:]}")
    write_csv(database, pathlib.Path(f"{at}.csv"))
    return {**json.loads(run.stdout), "command_seconds": seconds, "flags": args.flags}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=pathlib.Path, required=True, help="for plans and CSV files")
    parser.add_argument("--model", default="base", choices=["tiny", "base", "large"])
    parser.add_argument("--cases", default="1x128,8x512,16x2048")
    parser.add_argument("--masks", default=MASKS)
    parser.add_argument("--dtype", default="float16", help="of the weights: float16, or on a CPU float32")
    parser.add_argument("--cold", action="store_true", help="empty the cache of generated kernels before each search")
    RecordedCells.add_options(parser)
    parser.add_argument("flags", nargs="*", help="after --: flags of `seqfuse tune`")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    record = RecordedCells(args.output, "seqfuse tune, BERT with random weights", args.resume, args.until)
    cases = split_cases(args.cases)
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        model = write_model(args.model, max(length for _, length in cases), work, args.dtype)
        for batch, length in cases:
            for mask in split_masks(args.masks):
                key = {"model": args.model, "batch": batch, "length": length, "mask": mask, "flags": args.flags}
                if record.has(**key):
                    continue
                if not record.time_left():
                    print(f"--until {args.until:g}: the rest is left; --resume measures it")
                    return
                found = tune(model, args, batch, length, mask, work)
                record.add({**key, **found})
                print(
                    f"{args.model} {batch}x{length} {mask}: default {found['default_milliseconds']:.4g} ms, best "
                    f"{found['milliseconds']:.4g} ({found['scheme']}), {found['programs']} programs, "
                    f"{found['seconds']:.1f} s, command {found['command_seconds']:.1f} s",
                    flush=True,
                )


if __name__ == "__main__":
    main()
