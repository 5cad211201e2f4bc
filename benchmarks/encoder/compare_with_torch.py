#!/usr/bin/env python3
"""seqfuse.Encoder against BERT in plain PyTorch (and Hugging Face's, if installed): milliseconds a batch.

usage: compare_with_torch.py [--models base,large] [--cases 1x128,8x512,16x2048] [--masks none,causal,...] [--fill 1]
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
of a round. Masks are made before: for seqfuse, and the dense and Flex masks. --output is written anew after each case.

--autotune: torch.compile's max-autotune too, as a CUDA graph, with the seconds that it took; and the same with
attention left out (it returns v), to compare what surrounds attention with times of segments from `seqfuse tune`.
--plans FOLDER: plans of `seqfuse tune` called MODEL-BxN-MASK.json, with _ for : and , in MASK, such as
base-16x2048-sliding_64.json. --checkpoints FOLDER: writes the models there, as bert-MODEL, and ends.
"""

import argparse
import copy
import json
import math
import pathlib
import statistics
import tempfile
import time

import torch
from plain_bert import SHAPES, VOCABULARY, make_model, write_checkpoint
from published import PUBLISHED
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
    least, most = max(0.0, 2 * fill - 1) * length, min(1.0, 2 * fill) * length
    return [max(1, round(least + (most - least) * (i + 0.5) / batch)) for i in range(batch)]


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


class Models:
    """A BERT of random weights: ours, plain PyTorch's and Hugging Face's. Compiled ones are kept, for other masks."""

    def __init__(self, shape: dict, positions: int, folder: pathlib.Path, device: str) -> None:
        self.device, self.dtype = device, torch.float32 if device == "cpu" else torch.float16
        exact = torch.float64 if device == "cpu" else torch.float32
        plain = make_model(shape, positions)
        write_checkpoint(plain, shape, positions, folder, self.dtype)
        self.folder = folder
        self.encoder = seqfuse.Encoder.from_pretrained(folder, dtype=self.dtype, device=device)
        self.plain = copy.deepcopy(plain).to(device, self.dtype)
        # Of the rounded weights, which all the others have.
        self.exact = copy.deepcopy(self.plain).to(exact)
        self.hugging_face = self._hugging_face(folder)
        self.forget_compiled()

    def _hugging_face(self, folder: pathlib.Path):
        try:
            from transformers import BertModel  # noqa: PLC0415
        except ImportError:
            return None
        model = BertModel.from_pretrained(folder, add_pooling_layer=False, dtype=self.dtype)
        return model.eval().to(self.device)

    def forget_compiled(self) -> None:
        torch._dynamo.reset()
        self.compiled, self.with_flex = torch.compile(self.plain), torch.compile(self.plain)
        self.compiled_hugging_face = torch.compile(self.hugging_face) if self.hugging_face else None


def plain_ways(models: Models, ids, allowed) -> dict:
    """Functions without arguments that return states [B, N, H]."""
    attend = attend_with(allowed)
    ways = {"eager": lambda: models.plain(ids, attend), "compiled": lambda: models.compiled(ids, attend)}
    if models.device == "cpu":
        return ways
    ways["eager graph"] = ways["eager"]
    ways["compiled graph"] = ways["compiled"]
    if allowed is not None:
        flex = flex_attend(allowed, ids.shape[1])
        ways["flex graph"] = lambda: models.with_flex(ids, flex)
    return ways


def autotuned_ways(models: Models, ids, allowed) -> tuple[dict, dict]:
    """The ways, and the seconds that compiling them took."""
    ways, seconds = {}, {}
    for name, attend in (("max-autotune", attend_with(allowed)), ("max-autotune, no attention", lambda q, k, v: v)):
        compiled = torch.compile(models.plain, mode="max-autotune-no-cudagraphs")
        start = time.perf_counter()
        compiled(ids, attend)
        torch.cuda.synchronize()
        seconds[name] = time.perf_counter() - start
        ways[f"{name} graph"] = lambda compiled=compiled, attend=attend: compiled(ids, attend)
    return ways, seconds


def plan_of(args, model: str, batch: int, length: int, mask: str) -> pathlib.Path | None:
    if args.plans is None:
        return None
    file = args.plans / f"{model}-{batch}x{length}-{mask.replace(':', '_').replace(',', '_')}.json"
    return file if file.exists() else None


def hugging_face_ways(models: Models, ids, mask) -> dict:
    """mask: bool [B, N], or None. Without a mask of its own: transformers has none of those."""
    if models.hugging_face is None:
        return {}
    given = {} if mask is None else {"attention_mask": mask.long()}
    return {
        "Hugging Face eager": lambda: models.hugging_face(ids, **given).last_hidden_state,
        "Hugging Face compiled": lambda: models.compiled_hugging_face(ids, **given).last_hidden_state,
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
    tuning_seconds = {}
    if args.autotune:
        autotuned, tuning_seconds = autotuned_ways(models, ids, allowed)
        ways |= autotuned
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
    times = times_of(ours | full | ways, device, args.rounds)
    ms = {name: statistics.median(of) for name, of in times.items()}
    best, peer = min(ours, key=ms.get), min((way for way in ways if "no attention" not in way), key=ms.get)

    def quotient(of: str, by: str) -> float:
        return statistics.median(a / b for a, b in zip(times[of], times[by], strict=True))

    found = {"mask": mask, "batch": batch, "length": length, "fill": fill, "tokens": sum(lengths), "ms": ms,
             "errors": errors, "tuning_seconds": tuning_seconds, "best_peer": peer,
             "speedup": quotient(peer, best)}  # fmt: skip
    if full:
        found["times_full_sequences"] = quotient(best, "full sequences") * sum(of_full) / sum(lengths)
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
    cases = [tuple(map(int, case.split("x"))) for case in args.cases.split(",")]
    return [
        (name, batch, length, mask, args.fill, {})
        for name in args.models.split(",")
        for batch, length in cases
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
    parser.add_argument("--plans", type=pathlib.Path, help="folder with plans of seqfuse tune")
    parser.add_argument("--checkpoints", type=pathlib.Path, help="write the models there and end")
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--output", type=pathlib.Path, help="a JSON file")
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
    runs, results, models = runs_of(args), [], None
    positions, loaded, shape = max(length for _, _, length, *_ in runs), None, None
    if args.checkpoints:
        for name in args.models.split(","):
            folder = args.checkpoints / f"bert-{name}"
            folder.mkdir(parents=True, exist_ok=True)
            write_checkpoint(make_model(SHAPES[name], positions), SHAPES[name], positions, folder, torch.float16)
            print(folder)
        return
    with tempfile.TemporaryDirectory() as folder:
        for name, batch, length, mask, fill, more in runs:
            if name != loaded:
                models = None  # before the next one is loaded
                models, loaded = Models(SHAPES[name], positions, pathlib.Path(folder), args.device), name
            if (batch, length) != shape:
                models.forget_compiled()
                shape = batch, length
            results.append({"model": name, **run_case(models, args, name, batch, length, mask, fill), **more})
            print(text_of(results[-1]), flush=True)
            mean = math.exp(statistics.mean(math.log(result["speedup"]) for result in results))
            if args.output:
                report = {"machine": machine, "torch": torch.__version__, "results": results, "mean": mean}
                args.output.write_text(json.dumps(report, indent=1))
    print(f"geometric mean over {len(results)} cases: {mean:.3f}")


if __name__ == "__main__":
    main()
