#!/usr/bin/env python3
"""Masked attention against PyTorch's: FlexAttention (Triton), and SDPA with a dense mask or is_causal, on one GPU.

usage: PYTHONPATH=python SEQFUSE_LIBRARY=build/lib/libseqfuse_ops.so benchmarks/kernels/masked_attention_peers.py
           [--output FILE.json] [--passes forward|both] [--lengths 1024,2048,4096] [--kinds sliding,...]
           [--also PEERS.jsonl] [--kernels build/bin/masked_attention_kernel_bench]

float16, batch 16, 12 heads, head_dim 64; every contender computes the same boolean mask, taken from ours. Times are
medians over rounds that replay each contender's CUDA graph in turn; backward is both passes minus forward. `ours` is
the operator as this GPU runs it, `ours, SM 8.0` the same in a process with SEQFUSE_FORCE_SM80=1. Masks are timed by the
wall, until the GPU is done. --also adds times of other peers: lines {"what": ..., "mask": ..., "n": ..., "ms": ...},
forward. --kernels: ours are the times that this program prints, so that the Python package is not needed; then BigBird
draws other random blocks, equally many. Prints a line a cell, then geometric means; --output writes all as JSON.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import os
import statistics
import subprocess
import sys
import time

import torch
import torch.nn.functional as F
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

try:
    import seqfuse
    from seqfuse import BlockMask
except ImportError:  # with --kernels the package is not needed
    seqfuse = None

BATCH, HEADS, DIM, BLOCK = 16, 12, 64, 64
STRUCTURED = ("sliding", "longformer", "bigbird", "dilated")
KINDS = (*STRUCTURED, "causal")
SM80 = "ours, SM 8.0"


def our_mask(kind: str, n: int):
    return {
        "sliding": lambda: BlockMask.from_window(64, 64, n, device="cuda"),
        "longformer": lambda: BlockMask.from_longformer(64, 64, n, device="cuda"),
        "bigbird": lambda: BlockMask.from_bigbird(96, 64, 3, 1, n, device="cuda"),
        "dilated": lambda: BlockMask.from_window(256, 256, n, step=4, device="cuda"),
        "causal": lambda: BlockMask.from_causal(n, device="cuda"),
    }[kind]()


def random_blocks(n: int, ours: bool) -> torch.Tensor:
    """bool [blocks, blocks]: three blocks of keys a row."""
    if ours:
        return BlockMask.from_random_blocks(3, 1, n).to_dense()[0, ::BLOCK, ::BLOCK].cuda().contiguous()
    blocks = n // BLOCK
    drawn = torch.rand(blocks, blocks, generator=torch.Generator().manual_seed(1)).argsort(1)[:, :3]
    return torch.zeros(blocks, blocks, dtype=torch.bool).scatter_(1, drawn, True).cuda()


def mask_mod(kind: str, n: int, ours: bool):
    table = random_blocks(n, ours) if kind == "bigbird" else None
    return {
        "sliding": lambda b, h, q, k: (q - k).abs() <= 64,
        "longformer": lambda b, h, q, k: ((q - k).abs() <= 64) | (q < 64) | (k < 64),
        "bigbird": lambda b, h, q, k: ((q - k).abs() <= 96) | (q < 64) | (k < 64) | table[q // BLOCK, k // BLOCK],
        "dilated": lambda b, h, q, k: ((q - k).abs() <= 256) & ((q - k) % 4 == 0),
        "causal": lambda b, h, q, k: q >= k,
    }[kind]


class Replay:
    """A CUDA graph of several calls."""

    def __init__(self, work, budget_ms: float = 5.0):
        self.begin, self.end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for _ in range(3):
                self.begin.record()
                work()
                self.end.record()
            torch.cuda.synchronize()
            self.calls = min(max(int(budget_ms / max(self.begin.elapsed_time(self.end), 1e-3)), 1), 50)
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph, stream=stream):
                for _ in range(self.calls):
                    work()

    def milliseconds(self) -> float:
        self.begin.record()
        self.graph.replay()
        self.end.record()
        self.end.synchronize()
        return self.begin.elapsed_time(self.end) / self.calls


def medians(works: dict, rounds: int = 9, rest: float = 0.3) -> dict:
    replays, times = {}, {}
    for name, work in works.items():
        try:
            replays[name] = Replay(work)
        except Exception as error:  # a peer that cannot be captured or compiled is left out, and said so
            print(f"  {name}: {type(error).__name__}: {str(error).splitlines()[0][:160]}", flush=True)
    time.sleep(rest)
    for _ in range(rounds):
        for name, replay in replays.items():
            times.setdefault(name, []).append(replay.milliseconds())
    return {name: statistics.median(of) for name, of in times.items()}


def wall_ms(work, calls: int = 5) -> float:
    times = []
    for _ in range(calls):
        torch.cuda.synchronize()
        start = time.perf_counter()
        work()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times)


def forward_of(kind: str, n: int, options: argparse.Namespace, peers: bool, row: dict) -> dict:
    """name: attention(q, k, v); also measures how long masks take to make."""
    forward = {}
    if not options.kernels:
        mask = our_mask(kind, n)
        forward["ours"] = lambda q, k, v: seqfuse.masked_attention(q, k, v, mask)
        row["mask_ms"]["ours"] = wall_ms(lambda: our_mask(kind, n))
        row["density"] = mask.density
    if not peers:
        return forward
    mod = mask_mod(kind, n, not options.kernels)
    make = lambda: create_block_mask(mod, None, None, n, n, device="cuda")  # noqa: E731
    blocks = make()
    row["mask_ms"]["flex"] = wall_ms(make)
    torch._dynamo.reset()
    flex = torch.compile(flex_attention)
    forward["flex"] = lambda q, k, v: flex(q, k, v, block_mask=blocks)
    if kind == "causal":
        forward["sdpa causal"] = lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True)
    else:
        index = torch.arange(n, device="cuda")
        dense = mod(None, None, index[:, None], index[None, :])
        row["density"] = dense.float().mean().item()
        forward["sdpa dense"] = lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=dense)
    return forward


def cell(kind: str, n: int, options: argparse.Namespace, peers: bool = True) -> dict:
    torch.manual_seed(0)
    q, k, v = (torch.randn(BATCH, HEADS, n, DIM, device="cuda", dtype=torch.float16) for _ in range(3))
    row = {"mask": kind, "n": n, "mask_ms": {}, "forward": {}, "backward": {}}
    forward = forward_of(kind, n, options, peers, row)
    if "ours" in forward and peers:
        with torch.no_grad():
            first = [t[:1].float() for t in (q, k, v)]
            exact = forward["sdpa causal" if kind == "causal" else "sdpa dense"](*first)
            row["error"] = (forward["ours"](q, k, v)[:1] - exact).abs().max().item()
    with torch.no_grad():
        row["forward"] = medians({name: lambda f=f: f(q, k, v) for name, f in forward.items()})
    if options.passes == "both":
        leaves = [t.requires_grad_() for t in (q, k, v)]
        dout = torch.randn_like(q)
        slow = ("sdpa dense",)  # not a contender; it only shows what a dense mask costs
        both = medians(
            {
                name: lambda f=f: torch.autograd.grad(f(*leaves), leaves, dout)
                for name, f in forward.items()
                if name not in slow
            }
        )
        row["backward"] = {name: ms - row["forward"][name] for name, ms in both.items() if name in row["forward"]}
    return row


def ours_by_kernels(program: str, environment: dict) -> dict:
    """(mask, n): row, from the table that the program prints."""
    text = subprocess.run([program, "--time"], env=environment, check=True, capture_output=True, text=True).stdout
    rows = {}
    for line in text.splitlines():
        words = line.replace("%", " ").split()
        if words and words[0] in KINDS:
            kind, n, _, density, _, lists, forward, _, backward, *_ = words
            rows[kind, int(n)] = {
                "mask_ms": float(lists), "forward": float(forward), "backward": float(backward),
                "density": float(density) / 100,
            }  # fmt: skip
    return rows


def add_ours_as_sm80(rows: list[dict], options: argparse.Namespace) -> None:
    environment = {**os.environ, "SEQFUSE_FORCE_SM80": "1"}
    if options.kernels:
        for name, variables in (("ours", dict(os.environ)), (SM80, environment)):
            measured = ours_by_kernels(options.kernels, variables)
            for row in rows:
                ours = measured[row["mask"], row["n"]]
                row["forward"][name] = ours["forward"]
                row["mask_ms"]["ours"] = ours["mask_ms"]
                row.setdefault("density", ours["density"])
                if options.passes == "both":
                    row["backward"][name] = ours["backward"]
        return
    command = [sys.executable, __file__, "--only-ours", "--passes", options.passes]
    command += ["--lengths", ",".join(map(str, options.lengths)), "--kinds", ",".join(options.kinds)]
    output = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
    forced = {(r["mask"], r["n"]): r for r in map(json.loads, output.splitlines())}
    for row in rows:
        for direction in ("forward", "backward"):
            if ours := forced[row["mask"], row["n"]][direction].get("ours"):
                row[direction][SM80] = ours


def geometric_mean(values: list[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, values))) if values else math.nan


def summary(rows: list[dict]) -> dict:
    """How many times faster than the best peer of each cell ours is, and than Flex for SM 8.0."""
    found = {}
    for direction in ("forward", "backward"):
        for name in ("ours", SM80):
            cells = {}
            for row in rows:
                times = row[direction]
                against = [t for who, t in times.items() if who not in ("ours", SM80)]
                if name == SM80:
                    against = [times["flex"]] if "flex" in times else []
                if name in times and against:
                    cells[f"{row['mask']} {row['n']}"] = min(against) / times[name]
            structured = [ratio for key, ratio in cells.items() if key.split()[0] in STRUCTURED]
            if cells:
                found[f"{name}, {direction}"] = {
                    "geometric mean of structured masks": geometric_mean(structured),
                    "least": min(structured, default=math.nan),
                    "cells": cells,
                }
    shares = [row["mask_ms"]["ours"] / row["forward"]["ours"] for row in rows if "ours" in row["forward"]]
    if shares:
        found["making a mask, share of a forward call, largest"] = max(shares)
    return found


def text_of(times: dict) -> str:
    return "  ".join(f"{name} {ms:.4f}" for name, ms in times.items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output")
    parser.add_argument("--passes", choices=("forward", "both"), default="both")
    parser.add_argument("--lengths", default="1024,2048,4096", type=lambda s: [int(n) for n in s.split(",")])
    parser.add_argument("--kinds", default=",".join(KINDS), type=lambda s: s.split(","))
    parser.add_argument("--also")
    parser.add_argument("--kernels")
    parser.add_argument("--only-ours", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if seqfuse is None and not options.kernels:
        parser.error("the package seqfuse does not import; set PYTHONPATH and SEQFUSE_LIBRARY, or use --kernels")
    if options.only_ours:
        for kind in options.kinds:
            for n in options.lengths:
                print(json.dumps(cell(kind, n, options, peers=False)), flush=True)
        return
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}; ms", flush=True)
    rows = []
    for kind in options.kinds:
        for n in options.lengths:
            row = cell(kind, n, options)
            rows.append(row)
            print(f"{kind} {n}: error {row.get('error', math.nan):.2g}; masks {text_of(row['mask_ms'])}")
            print(f"  forward {text_of(row['forward'])}\n  backward {text_of(row['backward'])}", flush=True)
    add_ours_as_sm80(rows, options)
    if options.also:
        with open(options.also) as file:
            others = [json.loads(line) for line in file if line.strip()]
        for row in rows:
            for other in others:
                if (other.get("mask"), other.get("n")) == (row["mask"], row["n"]) and "ms" in other:
                    row["forward"][other["what"]] = other["ms"]
    report = {
        "benchmark": "attention under masks: float16, batch 16, 12 heads, head_dim 64; milliseconds",
        "card": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "date": datetime.date.today().isoformat(),
        "command": " ".join(["masked_attention_peers.py", *sys.argv[1:]]),
        "summary": summary(rows),
        "rows": rows,
    }
    print(json.dumps(report["summary"], indent=1))
    if options.output:
        with open(options.output, "w") as file:
            json.dump(report, file, indent=1)
            file.write("\n")


main()
