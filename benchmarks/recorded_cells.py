"""Results of a benchmark that may take longer than one run: cells in a JSON file, appended as they are measured.

With --resume a run keeps the cells that the file has and measures the others. The file says of each run when, where
and by which command it ran, and each cell names its run, so that times of two cards or versions are never confused.
"""

import datetime
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]


def _output_of(*command: str) -> str | None:
    if shutil.which(command[0]) is None:
        return None
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return (run.stdout.strip().splitlines() or [None])[0] if run.returncode == 0 else None


def provenance(**more) -> dict:
    """Of this run. SEQFUSE_COMMIT names the commit where there is no git."""
    return {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "command": " ".join([pathlib.Path(sys.argv[0]).name, *sys.argv[1:]]),
        "commit": os.environ.get("SEQFUSE_COMMIT") or _output_of("git", "rev-parse", "--short", "HEAD"),
        "driver": _output_of("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"),
        **more,
    }


class RecordedCells:
    """file: None keeps the cells in memory only."""

    def __init__(self, file: pathlib.Path | None, about: str, resume: bool, seconds: float | None, **run) -> None:
        self.file, self.seconds, self.start = file, seconds, time.monotonic()
        self.report: dict = {"benchmark": about, "runs": [], "cells": []}
        if resume and file is not None and file.exists():
            self.report = json.loads(file.read_text())
            if self.report.get("benchmark") != about:
                raise SystemExit(f"--resume: {file} holds {self.report.get('benchmark')!r}, not {about!r}")
        self.report["runs"].append(provenance(**run))

    @staticmethod
    def add_options(parser) -> None:
        parser.add_argument("--output", type=pathlib.Path, help="a JSON file")
        parser.add_argument("--resume", action="store_true", help="keep the cells that --output has")
        parser.add_argument("--until", type=float, help="seconds after which no other cell is begun")

    @property
    def cells(self) -> list[dict]:
        return self.report["cells"]

    def has(self, **key) -> bool:
        return any(all(cell.get(name) == value for name, value in key.items()) for cell in self.cells)

    def time_left(self) -> bool:
        return self.seconds is None or time.monotonic() - self.start < self.seconds

    def add(self, cell: dict) -> None:
        self.cells.append({**cell, "run": len(self.report["runs"]) - 1})
        self.write()

    def write(self, **summary) -> None:
        """summary: what is written beside the cells."""
        self.report |= summary
        if self.file is None:
            return
        beside = self.file.with_name(self.file.name + ".new")
        beside.write_text(json.dumps(self.report, indent=1) + "\n")
        beside.replace(self.file)
