#!/usr/bin/env python3
"""seqfuse.Encoder against BERT in plain PyTorch (and Hugging Face's, if installed): milliseconds a batch.

usage: compare_with_torch.py [--models base,large] [--cases 1x128,8x512,16x2048] [--masks none,causal,...] [--fill 1]
           [--output FILE.json [--resume]] [--until SECONDS]
       compare_with_torch.py --published
       compare_with_torch.py --device cpu --threads 2 --models base --cases 1x128,8x128 --masks none,sliding:64

Weights are random. Ways to run plain PyTorch: eager, compiled, on a GPU each also as a CUDA graph, and under a mask
with FlexAttention, compiled; attention is scaled_dot_product_attention, with a dense mask if there is a mask. On a GPU
all run in float16, else in float32. --fill below 1: sequences whose mean length is that share of N, lengths evenly
spread as widely as that allows; plain PyTorch computes their padding, seqfuse does not. Then as many tokens in full
sequences run too. --published: the cases of BERT-base that other projects published (published.py), with ours beside
their times; of plain PyTorch only eager runs, and what --peers names.

Each way is checked first, against float32 without TF32 (on a CPU float64): the error of seqfuse must be at most twice
that of eager. Rounds in which all ways take turns: times are medians over them, and so is the speedup, of the quotient
of a round. Masks are made before: for seqfuse, and the dense and Flex masks. --output is written after each case
(recorded_cells.py).

--autotune: torch.compile's max-autotune too, as a CUDA graph, with the seconds that compiling took; and the same with
attention left out (it returns v), beside ours less the time of its attention calls alone: `speedup_without_attention`.
--same-attention: also max-autotune around our attention operator.
--plans FOLDER: plans of `seqfuse tune` called MODEL-BxN-MASK.json, with _ for : and , in MASK, such as
base-16x2048-sliding_64.json. --checkpoints FOLDER: writes the models there, as bert-MODEL, and ends.
"""

import argparse
import functools
import math
import pathlib
import statistics
import sys
import tempfile
import time

import torch
from autotuned import OURS, OWN, WITHOUT, attention_alone
from cells import MASKS, file_name, split_cases, split_masks
from peers import Models, attend_with, block_mask_of, hugging_face_ways, in_graph, peers_mask, plain_ways
from plain_bert import SHAPES, VOCABULARY, make_model, write_checkpoint
from published import PUBLISHED

import seqfuse

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from recorded_cells import RecordedCells  # noqa: E402


def lengths_of(batch: int, length: int, fill: float) -> list[int]:
    least, most = max(0.0, 2 * fill - 1) * length, min(1.0, 2 * fill) * length
    return [max(1, round(least + (most - least) * (i + 0.5) / batch)) for i in range(batch)]


def autotuned_ways(models: Models, args, ids, allowed, block_mask) -> tuple[dict, dict]:
    """The ways, and the seconds that compiling those took that had not been compiled for another mask."""
    ways, seconds = {}, {}
    given = {OWN: allowed, WITHOUT: None} | ({OURS: block_mask} if args.same_attention and block_mask else {})
    for name, mask in given.items():
        try:
            ways[f"{name} graph"], seconds[name] = models.autotuned.run_of(name, ids, mask)
        except Exception as error:  # noqa: BLE001 (the others still count)
            print(f"{name} does not compile: {type(error).__name__}: {str(error)[:200]!r}", flush=True)
    return ways, seconds


def plan_of(args, model: str, batch: int, length: int, mask: str) -> pathlib.Path | None:
    if args.plans is None:
        return None
    file = args.plans / (file_name(model, batch, length, mask) + ".json")
    return file if file.exists() else None


def milliseconds(function, device: str) -> float:
    if device == "cpu":
        start = time.perf_counter()
        function()
        return 1000 * (time.perf_counter() - start)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    function()
    end.record()
    end.synchronize()
    return start.elapsed_time(end)


def times_of(ways: dict, device: str, rounds: int) -> dict[str, list[float]]:
    """Milliseconds by round. All ways take turns; the first two rounds do not count."""
    times = {name: [] for name in ways}
    for _ in range(rounds + 2):
        for name, way in ways.items():
            times[name].append(milliseconds(way, device))
    return {name: found[2:] for name, found in times.items()}


def relative_error(states: torch.Tensor, expected: torch.Tensor) -> float:
    return float((states.double() - expected.double()).norm() / expected.double().norm())


@torch.no_grad()
def run_case(models: Models, args, name: str, batch: int, length: int, mask: str, fill: float) -> dict:
    device, encoder, case = models.device, models.encoder, f"{batch}x{length}, {mask}"
    lengths = lengths_of(batch, length, fill)
    ids = torch.randint(VOCABULARY, (batch, length), device=device)
    kept = torch.arange(length, device=device) < torch.tensor(lengths, device=device)[:, None]
    allowed = peers_mask(encoder, mask, lengths, length)

    expected = models.exact(ids, attend_with(allowed))[kept]
    ways = plain_ways(models, ids, allowed)
    if mask == "none":
        ways |= hugging_face_ways(models, ids, None if fill == 1 else kept)
    chosen = None if args.peers is None else args.peers.split(",")
    ways = {way: run for way, run in ways.items() if way == "eager" or chosen is None or way in chosen}
    tuning_seconds, alone = {}, {}
    if args.autotune:
        blocks = None if mask == "none" else block_mask_of(mask, length, device)
        autotuned, tuning_seconds = autotuned_ways(models, args, ids, allowed, blocks)
        ways |= autotuned
        alone["attention alone"] = attention_alone(models.shape, ids, blocks)
    rows, of_batch = ids[kept], encoder.batch(lengths, mask)
    ours = {"seqfuse": lambda: encoder.encode_rows(rows, of_batch)}
    if plan := plan_of(args, name, batch, length, mask):
        tuned = seqfuse.Encoder.from_pretrained(models.folder, dtype=models.dtype, device=device, plan=plan)
        planned = tuned.batch(lengths, mask)
        ours["seqfuse plan"] = lambda: tuned.encode_rows(rows, planned)
    errors = {way: relative_error(run(), expected) for way, run in ours.items()}
    for way, run in list(ways.items()):
        try:
            errors[way] = relative_error(run()[kept], expected)
            ways[way] = in_graph(run) if way.endswith("graph") else run
        except Exception as error:  # noqa: BLE001 (some ways do not run on some versions: the others still count)
            if way == "eager":
                raise
            print(f"{case}: {way} does not run: {type(error).__name__}: {str(error)[:200]!r}", flush=True)
            del ways[way]
    if not all(errors[way] <= 2 * errors["eager"] for way in ours):
        raise SystemExit(f"{case}: too large an error of seqfuse; all relative errors: {errors}")
    full = {}
    if fill < 1:
        tokens = sum(lengths)
        of_full = [min(length, tokens)] * max(round(tokens / length), 1)
        full_rows = torch.randint(VOCABULARY, (sum(of_full),), device=device)
        full_batch = encoder.batch(of_full, mask)
        full["full sequences"] = lambda: encoder.encode_rows(full_rows, full_batch)
    if device != "cpu":
        ours |= {f"{way} graph": in_graph(run) for way, run in ours.items()}
        full = {way: in_graph(run) for way, run in full.items()}
        alone = {way: in_graph(run) for way, run in alone.items()}
    times = times_of(ours | full | alone | ways, device, args.rounds)
    ms = {name: statistics.median(of) for name, of in times.items()}
    no_peers = (f"{WITHOUT} graph", f"{OURS} graph")
    best, peer = min(ours, key=ms.get), min((way for way in ways if way not in no_peers), key=ms.get)

    def quotient(of: str, by: str) -> float:
        return statistics.median(a / b for a, b in zip(times[of], times[by], strict=True))

    found = {"mask": mask, "batch": batch, "length": length, "fill": fill, "tokens": sum(lengths), "ms": ms,
             "errors": errors, "tuning_seconds": tuning_seconds, "best_peer": peer,
             "speedup": quotient(peer, best)}  # fmt: skip
    if full:
        found["times_full_sequences"] = quotient(best, "full sequences") * sum(of_full) / sum(lengths)
    found |= against_autotuned(ms)
    return found


def against_autotuned(ms: dict) -> dict:
    """How many times as fast as max-autotune the plan is, or without one the default."""
    ours = ms.get("seqfuse plan graph", ms.get("seqfuse graph"))
    found = {}
    if f"{OWN} graph" in ms:
        found["speedup_over_autotune"] = ms[f"{OWN} graph"] / ours
    if f"{WITHOUT} graph" in ms:
        found["speedup_without_attention"] = ms[f"{WITHOUT} graph"] / (ours - ms["attention alone"])
    if f"{OURS} graph" in ms:
        found["speedup_same_attention"] = ms[f"{OURS} graph"] / ours
    if "seqfuse plan graph" in ms:
        found["plan_over_default"] = ms["seqfuse graph"] / ours
    return found


def means_of(cells: list[dict]) -> dict:
    """Geometric means over the cells that have a figure, the least of each, and how many cells these are."""
    names = ("speedup", "speedup_over_autotune", "speedup_without_attention", "speedup_same_attention",
             "plan_over_default", "times_full_sequences")  # fmt: skip
    found = {}
    for name in names:
        values = [cell[name] for cell in cells if name in cell]
        if values:
            mean = math.exp(statistics.fmean(map(math.log, values)))
            found[name] = {"geometric_mean": mean, "least": min(values), "largest": max(values), "cells": len(values)}
    return found


def text_of(result: dict) -> str:
    case = f"{result['model']} {result['batch']}x{result['length']} {result['mask']}"
    if "published_by" in result:
        theirs = result["published_ms"]
        published = "no number" if theirs is None else f"{theirs} ms"
        case += f" as {result['published_by']} ({published}, {result['card']})"
    if "times_full_sequences" in result:
        case += f" {result['times_full_sequences']:.3f} of full sequences"
    times = ", ".join(f"{way} {ms:.3f}" for way, ms in result["ms"].items())
    return f"{case}: {result['speedup']:.2f}x {result['best_peer']} | {times}"


def runs_of(args) -> list[tuple[str, int, int, str, float, dict]]:
    """Model, batch, length, mask, fill, and what else the result says; cases of equal shapes follow each other."""
    if args.published:
        return [
            ("base", batch, length, "none", of.fill,
             {"published_by": of.library, "card": of.card, "published_dtype": of.dtype, "source": of.source,
              "published_ms": of.ms.get((batch, length))})
            for of in PUBLISHED
            for batch, length in of.cases
        ]  # fmt: skip
    return [
        (name, batch, length, mask, args.fill, {})
        for name in args.models.split(",")
        for batch, length in split_cases(args.cases)
        for mask in split_masks(args.masks)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="base,large")
    parser.add_argument("--cases", default="1x128,8x512,16x2048")
    parser.add_argument("--masks", default=MASKS)
    parser.add_argument("--fill", type=float, default=1, help="share of the tokens that are no padding")
    parser.add_argument("--published", action="store_true", help="cases that others published, instead of the above")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=["cuda", "cpu"])
    parser.add_argument("--threads", type=int, help="of the CPU")
    parser.add_argument("--peers", help="of the ways to run PyTorch only eager and these, by commas")
    parser.add_argument("--autotune", action="store_true", help="on a GPU: torch.compile's max-autotune too")
    parser.add_argument("--same-attention", action="store_true", help="with --autotune, also around our attention")
    parser.add_argument("--plans", type=pathlib.Path, help="folder with plans of seqfuse tune")
    parser.add_argument("--checkpoints", type=pathlib.Path, help="write the models there and end")
    parser.add_argument("--rounds", type=int, default=21)
    RecordedCells.add_options(parser)
    args = parser.parse_args()
    if not 0 < args.fill <= 1:
        parser.error(f"--fill is {args.fill}; expected more than 0, up to 1")
    if args.published and args.peers is None:
        args.peers = "eager"
    if args.threads:
        torch.set_num_threads(args.threads)
    torch.backends.cuda.matmul.allow_tf32 = False
    torch._dynamo.config.recompile_limit = 64  # a case has several masks
    machine = torch.cuda.get_device_name() if args.device == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    print(f"{machine}, torch {torch.__version__}")
    runs = runs_of(args)
    positions = max(length for _, _, length, *_ in runs)
    if args.checkpoints:
        for name in args.models.split(","):
            folder = args.checkpoints / f"bert-{name}"
            folder.mkdir(parents=True, exist_ok=True)
            write_checkpoint(make_model(SHAPES[name], positions), SHAPES[name], positions, folder, torch.float16)
            print(folder)
        return
    about = "BERT encoders: milliseconds a batch, seqfuse and plain PyTorch, weights random"
    record = RecordedCells(args.output, about, args.resume, args.until, machine=machine, torch=torch.__version__)
    measure_all(runs, positions, args, record)
    for figure, of in means_of(record.cells).items():
        print(f"{figure}: geometric mean {of['geometric_mean']:.3f}, least {of['least']:.3f}, {of['cells']} cells")


def measure_all(runs: list, positions: int, args, record: RecordedCells) -> None:
    @functools.lru_cache(maxsize=1)
    def models_of(name: str) -> Models:
        return Models(SHAPES[name], positions, pathlib.Path(folder), args.device)

    shape = None
    with tempfile.TemporaryDirectory() as folder:
        for name, batch, length, mask, fill, more in runs:
            key = {"model": name, "batch": batch, "length": length, "mask": mask, "fill": fill}
            if record.has(**key, published_by=more.get("published_by")):
                continue
            if not record.time_left():
                print(f"--until {args.until:g}: the rest is left; --resume measures it")
                return
            models = models_of(name)
            if (name, batch, length) != shape:
                models.forget_compiled()
                shape = name, batch, length
            record.add({"model": name, **run_case(models, args, name, batch, length, mask, fill), **more})
            record.write(means=means_of(record.cells))
            print(text_of(record.cells[-1]), flush=True)


if __name__ == "__main__":
    main()
