#!/usr/bin/env python3
"""seqfuse.Encoder against BERT in plain PyTorch (and Hugging Face's, if installed): milliseconds a batch.

usage: compare_with_torch.py [--models base,large] [--cases 1x128,8x512,16x2048] [--masks none,causal,...] [--fill 1]
       compare_with_torch.py --device cpu --threads 2 --models base --cases 1x128,8x128 --masks none,sliding:64

Weights are random. Ways to run plain PyTorch: eager, compiled, on a GPU each also as a CUDA graph, and under a mask
with FlexAttention, compiled; attention is scaled_dot_product_attention, with a dense mask if there is a mask. On a GPU
all run in float16, else in float32. --fill below 1: sequences of lengths from 0 to twice that share of N, evenly
spread; plain PyTorch computes their padding, seqfuse does not. Then as many tokens in full sequences run too.

Each way is checked first, against float32 without TF32 (on a CPU float64): the error of seqfuse must be at most twice
that of eager. Times are medians of rounds in which all ways take turns. Masks are made before: for seqfuse, and the
dense and Flex masks.
"""

import argparse
import json
import math
import pathlib
import statistics
import tempfile
import time

import torch
from plain_bert import SHAPES, VOCABULARY, make_model, write_checkpoint
from torch.nn import functional as F

import seqfuse

MASKS = "none,causal,sliding:64,longformer:64,64,bigbird:96,64,3,dilated:256,4"


def split_masks(text: str) -> list[str]:
    """Numbers after a comma belong to the mask before it."""
    masks = []
    for part in text.split(","):
        if part.lstrip("-").isdigit():
            masks[-1] += f",{part}"
        else:
            masks.append(part)
    return masks


def dense_mask(encoder: seqfuse.Encoder, mask: str, length: int) -> torch.Tensor:
    """bool [N, N] of a mask, by seqfuse.BlockMask."""
    kind, _, rest = mask.partition(":")
    n = [int(value) for value in rest.split(",")] if rest else []
    make = seqfuse.BlockMask
    block_mask = {
        "causal": lambda: make.from_causal(length),
        "sliding": lambda: make.from_window(n[0], n[0], length),
        "dilated": lambda: make.from_window(n[0], n[0], length, step=n[1]),
        "longformer": lambda: make.from_longformer(n[0], n[1], length),
        "bigbird": lambda: make.from_bigbird(n[0], n[1], n[2], 1, length),
    }[kind]()
    return block_mask.to_dense()[0].to(encoder.device)


def peers_mask(encoder: seqfuse.Encoder, mask: str, lengths: list[int], length: int) -> torch.Tensor | None:
    """bool [1 or B, 1, 1 or N, N]: that of each sequence's own length; None: all see all."""
    full = all(tokens == length for tokens in lengths)
    if mask == "none":
        columns = torch.arange(length, device=encoder.device)
        return None if full else columns < torch.tensor(lengths, device=encoder.device)[:, None, None, None]
    if full:
        return dense_mask(encoder, mask, length)[None, None]
    allowed = torch.zeros(len(lengths), 1, length, length, dtype=torch.bool, device=encoder.device)
    for b, tokens in enumerate(lengths):
        allowed[b, 0, :tokens, :tokens] = dense_mask(encoder, mask, tokens)
        allowed[b, 0, tokens:, 0] = True  # padding must see something, or it becomes NaN and spreads
    return allowed


def lengths_of(batch: int, length: int, fill: float) -> list[int]:
    if fill == 1:
        return [length] * batch
    return [max(1, min(length, round(2 * fill * length * (i + 0.5) / batch))) for i in range(batch)]


def attend_with(allowed: torch.Tensor | None):
    return lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=allowed)


def in_graph(function, warm_up: int = 3):
    """A function that replays what function() does; its result is function's tensor."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(warm_up):
            function()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = function()

    def replay():
        graph.replay()
        return result

    return replay


def flex_attend(allowed: torch.Tensor, length: int):
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention  # noqa: PLC0415

    table = allowed.expand(allowed.shape[0], 1, length, length)
    batch = table.shape[0] if table.shape[0] > 1 else None
    block_mask = create_block_mask(
        lambda b, h, q, k: table[b if batch else 0, 0, q, k], batch, None, length, length, device=allowed.device
    )
    return lambda q, k, v: flex_attention(q, k, v, block_mask=block_mask)


def plain_ways(model, ids, allowed, device: str) -> dict:
    """Functions without arguments that return states [B, N, H]."""
    attend = attend_with(allowed)
    compiled = torch.compile(model)
    ways = {"eager": lambda: model(ids, attend), "compiled": lambda: compiled(ids, attend)}
    if device == "cpu":
        return ways
    ways["eager graph"] = ways["eager"]
    ways["compiled graph"] = ways["compiled"]
    if allowed is not None:
        with_flex = torch.compile(model)
        flex = flex_attend(allowed, ids.shape[1])
        ways["flex graph"] = lambda: with_flex(ids, flex)
    return ways


def hugging_face_ways(folder: pathlib.Path, ids, mask, dtype, device: str) -> dict:
    """mask: bool [B, N], or None. Without a mask of its own: transformers has none of those."""
    try:
        from transformers import BertModel  # noqa: PLC0415
    except ImportError:
        return {}
    model = BertModel.from_pretrained(folder, add_pooling_layer=False, dtype=dtype).eval().to(device)
    compiled = torch.compile(model)
    given = {} if mask is None else {"attention_mask": mask.long()}
    return {
        "Hugging Face eager": lambda: model(ids, **given).last_hidden_state,
        "Hugging Face compiled": lambda: compiled(ids, **given).last_hidden_state,
    }


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


def medians(ways: dict, device: str, rounds: int) -> dict[str, float]:
    """All ways take turns; the first two rounds do not count."""
    times = {name: [] for name in ways}
    for _ in range(rounds + 2):
        for name, way in ways.items():
            times[name].append(milliseconds(way, device))
    return {name: statistics.median(found[2:]) for name, found in times.items()}


def relative_error(states: torch.Tensor, expected: torch.Tensor) -> float:
    return float((states.double() - expected.double()).norm() / expected.double().norm())


@torch.no_grad()
def run_case(folder: pathlib.Path, shape: dict, positions: int, args, batch: int, length: int, mask: str) -> dict:
    device, dtype = args.device, torch.float32 if args.device == "cpu" else torch.float16
    encoder = seqfuse.Encoder.from_pretrained(folder, dtype=dtype, device=device)
    lengths = lengths_of(batch, length, args.fill)
    ids = torch.randint(VOCABULARY, (batch, length), device=device)
    kept = torch.arange(length, device=device) < torch.tensor(lengths, device=device)[:, None]
    allowed = peers_mask(encoder, mask, lengths, length)

    wide = make_model(shape, positions).to(device, torch.float64 if device == "cpu" else torch.float32)
    expected = wide(ids, attend_with(allowed))[kept]
    model = wide.to(dtype)
    ways = plain_ways(model, ids, allowed, device)
    if mask == "none":
        ways |= hugging_face_ways(folder, ids, None if args.fill == 1 else kept, dtype, device)
    chosen = None if args.peers is None else args.peers.split(",")
    ways = {name: way for name, way in ways.items() if name == "eager" or chosen is None or name in chosen}
    rows, of_batch = ids[kept], encoder.batch(lengths, mask)
    ours = {"seqfuse": lambda: encoder.encode_rows(rows, of_batch)}
    errors = {}
    for name, way in list(ways.items()):
        try:
            errors[name] = relative_error(way()[kept], expected)
            ways[name] = in_graph(way) if name.endswith("graph") else way
        except Exception as error:  # noqa: BLE001 (some ways do not run on some versions: the others still count)
            print(f"{batch}x{length}, {mask}: {name} does not run: {str(error)[:200]!r}")
            del ways[name]
    errors["seqfuse"] = relative_error(ours["seqfuse"](), expected)
    if not errors["seqfuse"] <= 2 * errors["eager"]:
        raise SystemExit(f"{batch}x{length}, {mask}: too large an error of seqfuse; all relative errors: {errors}")
    if device != "cpu":
        ours["seqfuse graph"] = in_graph(ours["seqfuse"])
    if args.fill < 1:
        tokens = sum(lengths)
        of_full = [min(length, tokens)] * max(tokens // length, 1)
        full_rows = torch.randint(VOCABULARY, (sum(of_full),), device=device)
        full_batch = encoder.batch(of_full, mask)
        ours["as many tokens in full sequences"] = lambda: encoder.encode_rows(full_rows, full_batch)
        if device != "cpu":
            ours["as many tokens in full sequences"] = in_graph(ours["as many tokens in full sequences"])
    times = medians(ours | ways, device, args.rounds)
    best = min(times[name] for name in ours if name.startswith("seqfuse"))
    peer = min(ways, key=lambda name: times[name])
    return {"mask": mask, "batch": batch, "length": length, "tokens": sum(lengths), "ms": times, "errors": errors,
            "best_peer": peer, "speedup": times[peer] / best}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="base,large")
    parser.add_argument("--cases", default="1x128,8x512,16x2048")
    parser.add_argument("--masks", default=MASKS)
    parser.add_argument("--fill", type=float, default=1, help="share of the tokens that are no padding")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=["cuda", "cpu"])
    parser.add_argument("--threads", type=int, help="of the CPU")
    parser.add_argument("--peers", help="of the ways to run PyTorch only eager and these, by commas")
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--output", type=pathlib.Path, help="a JSON file")
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)
    torch.backends.cuda.matmul.allow_tf32 = False
    machine = torch.cuda.get_device_name() if args.device == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    print(f"{machine}, torch {torch.__version__}, fill {args.fill:g}")
    cases = [tuple(map(int, case.split("x"))) for case in args.cases.split(",")]
    positions, results = max(length for _, length in cases), []
    for name in args.models.split(","):
        with tempfile.TemporaryDirectory() as folder:
            model, dtype = make_model(SHAPES[name], positions), torch.float32 if args.device == "cpu" else torch.float16
            write_checkpoint(model, SHAPES[name], positions, pathlib.Path(folder), dtype)
            for batch, length in cases:
                for mask in split_masks(args.masks):
                    torch._dynamo.reset()
                    result = run_case(pathlib.Path(folder), SHAPES[name], positions, args, batch, length, mask)
                    results.append({"model": name, **result})
                    times = ", ".join(f"{way} {ms:.3f}" for way, ms in result["ms"].items())
                    print(f"{name} {batch}x{length} {mask}: {result['speedup']:.2f}x {result['best_peer']} | {times}")
    mean = math.exp(statistics.mean(math.log(result["speedup"]) for result in results))
    print(f"geometric mean over {len(results)} cases: {mean:.3f}")
    if args.output:
        report = {"machine": machine, "torch": torch.__version__, "fill": args.fill, "results": results, "mean": mean}
        args.output.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
