#!/usr/bin/env python3
"""Captures an encoder's batch or an HSTU training step by Nsight Compute and prints its kernels by operators.

usage: PYTHONPATH=python SEQFUSE_BINARY=build/bin/seqfuse SEQFUSE_LIBRARY=build/lib/libseqfuse_ops.so
           benchmarks/profiles/capture.py encode|train [--output FILE.md]

encode: BERT-base with random weights in float16, 8 sentences of 512 tokens, --mask of `seqfuse encode`. train:
hstu_step.py. FILE.md has the table and how it was made. NCU names another ncu. docs/profiling.md says what the times
mean.
"""

import argparse
import os
import pathlib
import random
import subprocess
import sys
import tempfile

BENCHMARKS = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(BENCHMARKS), str(BENCHMARKS / "encoder")]
from recorded_cells import provenance  # noqa: E402

BATCH, LENGTH = 8, 512
METRICS = (
    "gpu__time_duration.sum,dram__bytes.sum,sm__warps_active.avg.pct_of_peak_sustained_active,"
    "launch__registers_per_thread"
)


def encoder_command(folder: pathlib.Path, mask: str, plan: pathlib.Path | None) -> list[str]:
    import torch  # noqa: PLC0415
    from plain_bert import SHAPES, VOCABULARY, make_model, write_checkpoint  # noqa: PLC0415

    write_checkpoint(make_model(SHAPES["base"], LENGTH), SHAPES["base"], LENGTH, folder, torch.float16)
    draw = random.Random(1)
    lines = [",".join(str(draw.randrange(VOCABULARY)) for _ in range(LENGTH)) for _ in range(BATCH)]
    (folder / "ids.txt").write_text("\n".join(lines) + "\n")
    command = [os.environ.get("SEQFUSE_BINARY", "seqfuse"), "encode", str(folder), "--ids", str(folder / "ids.txt")]
    command += [] if plan is None else ["--plan", str(plan)]
    return [*command, "--mask", mask, "--batch-tokens", str(BATCH * LENGTH), "--output", str(folder / "vectors.npy")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["encode", "train"])
    parser.add_argument("--mask", default="sliding:64")
    parser.add_argument("--plan", type=pathlib.Path, help="of seqfuse tune, for 8 sentences of 512 tokens")
    parser.add_argument("--output", type=pathlib.Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        capture = folder / "capture.ncu-rep"
        ncu = [os.environ.get("NCU", "ncu"), "--nvtx", "--clock-control", "none", "--metrics", METRICS]
        ncu += ["--export", str(capture), "--force-overwrite"]
        if args.what == "encode":
            command = encoder_command(folder, args.mask, args.plan)
        else:
            ncu += ["--profile-from-start", "off"]
            command = [sys.executable, str(BENCHMARKS / "profiles/hstu_step.py")]
        subprocess.run([*ncu, *command], check=True)
        tool = BENCHMARKS.parent / "tools/kernel_table"
        table = subprocess.run(
            [sys.executable, str(tool), str(capture)], check=True, stdout=subprocess.PIPE, text=True
        ).stdout
    made = ", ".join(f"{key} {value}" for key, value in provenance().items() if value)
    text = f"{table}\n{made}\n"
    print(text)
    if args.output:
        args.output.write_text(text)


if __name__ == "__main__":
    main()
