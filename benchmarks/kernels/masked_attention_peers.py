#!/usr/bin/env python3
"""Masked attention against PyTorch's: FlexAttention (Triton), SDPA with a dense mask, and causal SDPA, on one GPU.

usage: PYTHONPATH=python SEQFUSE_LIBRARY=build/lib/libseqfuse_ops.so benchmarks/kernels/masked_attention_peers.py
           [--output FILE.json [--resume]] [--until SECONDS] [--passes forward|both] [--lengths 1024,2048,4096]
           [--kinds sliding,...]
           [--also PEERS.jsonl] [--kernels build/bin/masked_attention_kernel_bench]
to try it without a GPU: ... --device cpu --batch 1 --heads 2 --lengths 128

float16 (on a CPU float32), batch 16, 12 heads, head_dim 64; every contender computes the same boolean mask, taken from
ours, and is compared with float32. Times are medians over rounds that replay each contender's CUDA graph in turn;
backward is both passes minus forward. `ours` is the operator as this GPU runs it, `ours, SM 8.0` the same in a process
with SEQFUSE_FORCE_SM80=1. Masks are timed by the wall, until the GPU is done. --also adds forward times of peers that
were measured elsewhere: lines {"what": ..., "mask": ..., "n": ..., "ms": ...}. --kernels: ours are the times that this
program prints, so that the Python package is not needed; then BigBird draws other random blocks, equally many. Prints a
line a cell, then how many times faster than the best peer ours is; --output has all as JSON, and is written after each
cell (recorded_cells.py).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import time

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

try:
    import seqfuse
    from seqfuse import BlockMask
except ImportError:  # with --kernels the package is not needed
    seqfuse = None

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from recorded_cells import RecordedCells  # noqa: E402

DIM, BLOCK = 64, 64
STRUCTURED = ("sliding", "longformer", "bigbird", "dilated")
KINDS = (*STRUCTURED, "causal")
OURS, SM80 = "ours", "ours, SM 8.0"
DENSE = "sdpa dense"
LARGEST_ERROR = 0.01  # of an output; float16's is below .002


def our_mask(kind: str, n: int, device: str):
    return {
        "sliding": lambda: BlockMask.from_window(64, 64, n, device=device),
        "longformer": lambda: BlockMask.from_longformer(64, 64, n, device=device),
        "bigbird": lambda: BlockMask.from_bigbird(96, 64, 3, 1, n, device=device),
        "dilated": lambda: BlockMask.from_window(256, 256, n, step=4, device=device),
        "causal": lambda: BlockMask.from_causal(n, device=device),
    }[kind]()


def random_blocks(n: int, options: argparse.Namespace) -> torch.Tensor:
    """bool [blocks, blocks]: three blocks of keys a row."""
    blocks = n // BLOCK
    if not options.kernels:
        dense = BlockMask.from_random_blocks(min(3, blocks), 1, n).to_dense()
        return dense[0, ::BLOCK, ::BLOCK].to(options.device).contiguous()
    drawn = torch.rand(blocks, blocks, generator=torch.Generator().manual_seed(1)).argsort(1)[:, :3]
    return torch.zeros(blocks, blocks, dtype=torch.bool).scatter_(1, drawn, True).to(options.device)


def mask_mod(kind: str, n: int, options: argparse.Namespace):
    table = random_blocks(n, options) if kind == "bigbird" else None
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
        stream.wait_stream(torch.cuda.current_stream())
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
        torch.cuda.synchronize()

    def milliseconds(self) -> float:
        self.begin.record()
        self.graph.replay()
        self.end.record()
        self.end.synchronize()
        return self.begin.elapsed_time(self.end) / self.calls


class Call:
    """The same on a CPU, without a graph."""

    def __init__(self, work):
        self.work = work
        work()

    def milliseconds(self) -> float:
        return wall_ms(self.work, calls=1)


def say(text: str) -> None:
    """To standard error: --only-ours prints JSON lines to standard output."""
    print(text, file=sys.stderr, flush=True)


def medians(works: dict, device: str, rounds: int = 9, rest: float = 0.3) -> dict:
    timed, times = {}, {}
    for name, work in works.items():
        try:
            timed[name] = Replay(work) if device == "cuda" else Call(work)
        except Exception as error:
            if name == OURS:
                raise
            # A peer that cannot be captured or compiled is left out, and said so.
            say(f"  {name} does not run: {type(error).__name__}: {str(error)[:160]!r}")
    time.sleep(rest)
    for _ in range(rounds):
        for name, way in timed.items():
            times.setdefault(name, []).append(way.milliseconds())
    return {name: statistics.median(of) for name, of in times.items()}


def wall_ms(work, calls: int = 5) -> float:
    wait = torch.cuda.synchronize if torch.cuda.is_available() else lambda: None
    times = []
    for _ in range(calls):
        wait()
        start = time.perf_counter()
        work()
        wait()
        times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times)


def by_cudnn(q, k, v):
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def forward_of(kind: str, n: int, options: argparse.Namespace, peers: bool, row: dict) -> dict:
    """name: attention(q, k, v); also measures how long masks take to make."""
    forward, device = {}, options.device
    if not options.kernels:
        mask = our_mask(kind, n, device)
        forward[OURS] = lambda q, k, v: seqfuse.masked_attention(q, k, v, mask)
        row["mask_ms"][OURS] = wall_ms(lambda: our_mask(kind, n, device))
        row["density"] = mask.density
    if not peers:
        return forward
    mod = mask_mod(kind, n, options)
    make = lambda: create_block_mask(mod, None, None, n, n, device=device)  # noqa: E731
    blocks = make()
    row["mask_ms"]["flex"] = wall_ms(make)
    torch._dynamo.reset()
    flex = torch.compile(flex_attention)
    forward["flex"] = lambda q, k, v: flex(q, k, v, block_mask=blocks)
    if kind == "causal":
        forward["sdpa causal"] = lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True)
        if device == "cuda":
            forward["cudnn causal"] = by_cudnn
    else:
        index = torch.arange(n, device=device)
        dense = mod(None, None, index[:, None], index[None, :])
        row.setdefault("density", dense.float().mean().item())
        forward[DENSE] = lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=dense)
    return forward


@torch.no_grad()
def errors_of(forward: dict, q, k, v) -> dict:
    """The largest error of each contender's first sequence; those that do not run are left to medians()."""
    reference = forward[DENSE] if DENSE in forward else forward["sdpa causal"]
    exact, errors = reference(*(t[:1].float() for t in (q, k, v))), {}
    for name, attention in forward.items():
        try:
            errors[name] = (attention(q, k, v)[:1] - exact).abs().max().item()
        except Exception:
            if name == OURS:
                raise
            continue
        if not errors[name] <= LARGEST_ERROR:
            raise SystemExit(f"{name} has an error of {errors[name]:.3g}: it computes something else")
    return errors


def cell(kind: str, n: int, options: argparse.Namespace, peers: bool = True) -> dict:
    torch.manual_seed(0)
    device, dtype = options.device, torch.float16 if options.device == "cuda" else torch.float32
    q, k, v = (torch.randn(options.batch, options.heads, n, DIM, device=device, dtype=dtype) for _ in range(3))
    row = {"mask": kind, "n": n, "mask_ms": {}, "forward": {}, "backward": {}}
    forward = forward_of(kind, n, options, peers, row)
    if peers:
        row["errors"] = errors_of(forward, q, k, v)
    with torch.no_grad():
        row["forward"] = medians({name: lambda f=f: f(q, k, v) for name, f in forward.items()}, device)
    if options.passes == "both":
        leaves = [t.requires_grad_() for t in (q, k, v)]
        dout = torch.randn_like(q)
        # A dense mask is no contender: its forward time shows what it costs.
        works = {
            name: lambda f=f: torch.autograd.grad(f(*leaves), leaves, dout)
            for name, f in forward.items()
            if name != DENSE
        }
        both = medians(works, device)
        row["backward"] = {name: ms - row["forward"][name] for name, ms in both.items() if name in row["forward"]}
    return row


def ours_by_kernels(program: str, environment: dict) -> dict:
    """(mask, n): row, from the table that the program prints."""
    command = [program, "--time", *KINDS]
    text = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout
    rows = {}
    for line in text.splitlines():
        words = line.replace("%", " ").split()
        if words and words[0] in KINDS:
            kind, n, _, density, _, forward, _, lists, backward, *_ = words
            rows[kind, int(n)] = {
                "mask_ms": float(lists), "forward": float(forward), "backward": float(backward),
                "density": float(density) / 100,
            }  # fmt: skip
    return rows


class OursElsewhere:
    """Times of ours that other processes measure."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.tables, self.process = options, {}, None
        self.forced = {**os.environ, "SEQFUSE_FORCE_SM80": "1"}
        if options.kernels:
            environments = {OURS: dict(os.environ), SM80: self.forced}
            self.tables = {name: ours_by_kernels(options.kernels, of) for name, of in environments.items()}

    def of(self, kind: str, n: int) -> dict:
        """name: row."""
        if self.options.kernels:
            return {name: table[kind, n] for name, table in self.tables.items()}
        if self.options.device == "cpu":
            return {}
        found = json.loads(self._answer(f"{kind} {n}"))
        return {SM80: {way: found[way][OURS] for way in ("forward", "backward") if OURS in found[way]}}

    def _answer(self, question: str) -> str:
        """Of one process for all cells, which computes nothing between them."""
        if self.process is None:
            command = [sys.executable, os.path.abspath(__file__), "--only-ours", "--passes", self.options.passes]
            command += ["--batch", str(self.options.batch), "--heads", str(self.options.heads)]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            self.process = subprocess.Popen(command, env=self.forced, text=True, **pipes)
        self.process.stdin.write(question + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"the process with SEQFUSE_FORCE_SM80=1 ended with exit code {self.process.wait()}")
        return line


def add_others(row: dict, elsewhere: dict, also: list[dict], passes: str) -> None:
    for name, ours in elsewhere.items():
        row["forward"][name] = ours["forward"]
        if passes == "both":
            row["backward"][name] = ours["backward"]
        if name == OURS:
            row["mask_ms"][name] = ours["mask_ms"]
    for other in also:
        if (other.get("mask"), other.get("n")) == (row["mask"], row["n"]) and "ms" in other:
            row["forward"][other["what"]] = other["ms"]


def geometric_mean(values: list[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, values))) if values else math.nan


def summary(rows: list[dict]) -> dict:
    """How many times faster than the best peer of each cell ours is, and than Flex for SM 8.0."""
    found = {}
    for direction in ("forward", "backward"):
        for name in (OURS, SM80):
            cells = {}
            for row in rows:
                times = row[direction]
                peers = {who: ms for who, ms in times.items() if who not in (OURS, SM80)}
                if name == SM80:
                    peers = {who: ms for who, ms in peers.items() if who == "flex"}
                if name in times and peers:
                    best = min(peers, key=peers.get)
                    cells[f"{row['mask']} {row['n']}"] = {"times": peers[best] / times[name], "over": best}
            structured = [of["times"] for key, of in cells.items() if key.split()[0] in STRUCTURED]
            if cells:
                found[f"{name}, {direction}"] = {
                    "geometric mean of structured masks": geometric_mean(structured),
                    "least of structured masks": min(structured, default=math.nan),
                    "cells": cells,
                }
    shares = [row["mask_ms"][OURS] / row["forward"][OURS] for row in rows if OURS in row["forward"]]
    if shares:
        found["making a mask, share of a forward call, largest"] = max(shares)
    return found


def text_of(times: dict) -> str:
    return "  ".join(f"{name} {value:.4g}" for name, value in times.items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    RecordedCells.add_options(parser)
    parser.add_argument("--passes", choices=("forward", "both"), default="both")
    parser.add_argument("--lengths", default="1024,2048,4096", type=lambda s: [int(n) for n in s.split(",")])
    parser.add_argument("--kinds", default=",".join(KINDS), type=lambda s: s.split(","))
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--also")
    parser.add_argument("--kernels")
    parser.add_argument("--only-ours", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.kernels and ((options.batch, options.heads, options.device) != (16, 12, "cuda")):
        parser.error("--kernels times a batch of 16 with 12 heads on a GPU: leave out --batch, --heads, --device")
    for kind in options.kinds:
        if kind not in KINDS:
            parser.error(f"--kinds has {kind}; expected some of {', '.join(KINDS)}")
    if seqfuse is None and not options.kernels:
        parser.error("the package seqfuse does not import; set PYTHONPATH and SEQFUSE_LIBRARY, or use --kernels")
    cells = [(kind, n) for kind in options.kinds for n in options.lengths]
    if options.only_ours:
        for line in sys.stdin:
            kind, n = line.split()
            print(json.dumps(cell(kind, int(n), options, peers=False)), flush=True)
            torch.cuda.empty_cache()
        return
    also = []
    if options.also:
        with open(options.also) as file:
            also = [json.loads(line) for line in file if line.strip()]
    machine = torch.cuda.get_device_name() if options.device == "cuda" else "CPU"
    print(f"{machine}, torch {torch.__version__}; ms", flush=True)
    about = f"attention under masks: batch {options.batch}, {options.heads} heads, head_dim {DIM}; ms"
    record = RecordedCells(options.output, about, options.resume, options.until, card=machine, torch=torch.__version__)
    elsewhere = OursElsewhere(options)
    for kind, n in cells:
        if record.has(mask=kind, n=n):
            continue
        if not record.time_left():
            print(f"--until {options.until:g}: the rest is left; --resume measures it")
            break
        row = cell(kind, n, options)
        add_others(row, elsewhere.of(kind, n), also, options.passes)
        record.add(row)
        record.write(summary=summary(record.cells))
        print(f"{kind} {n}: errors {text_of(row['errors'])}; masks {text_of(row['mask_ms'])}")
        print(f"  forward {text_of(row['forward'])}\n  backward {text_of(row['backward'])}", flush=True)
    print(json.dumps(summary(record.cells), indent=1))


main()
