#!/usr/bin/env python3
"""Time per output token of seqfuse.GPTNeoX and of Hugging Face's GPT-NeoX in one process, with the same weights.

usage: compare_with_transformers.py     with PYTHONPATH=python SEQFUSE_LIBRARY=build/lib/libseqfuse_ops.so

Random float16 weights of Pythia-2.8B's shape unless --layers, --hidden and --heads say otherwise; they are written to a
temporary folder (5.6 GB), from which both read. Hugging Face's model has a static cache and runs eager and, unless
--no-compile is given, compiled with CUDA graphs (mode "reduce-overhead"). Contestants take turns; a turn reads a
prompt, decodes --skip tokens that are not timed, then --tokens timed ones, with --cache tokens in the cache in the
middle of them. Hugging Face's loop waits for the GPU only at the end. Prints JSON: milliseconds a token (median, lowest
and highest over --rounds), and how many of the greedy tokens are those of the eager model.
"""

import argparse
import json
import pathlib
import statistics
import tempfile
import time

import torch
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM, StaticCache

import seqfuse


def write_model(folder: str, options: argparse.Namespace) -> None:
    config = GPTNeoXConfig(
        vocab_size=options.vocabulary, hidden_size=options.hidden, num_hidden_layers=options.layers,
        num_attention_heads=options.heads, intermediate_size=4 * options.hidden, max_position_embeddings=2048,
        eos_token_id=None, bos_token_id=None,
    )  # fmt: skip
    torch.manual_seed(1)
    with torch.device(options.device):
        model = GPTNeoXForCausalLM(config)
    model.to(getattr(torch, options.dtype)).save_pretrained(folder)


class HuggingFace:
    """One model and its cache; step: the model's forward, or the same compiled."""

    def __init__(self, model: GPTNeoXForCausalLM, step, batch: int, options: argparse.Namespace) -> None:
        self.model, self.step, self.batch, self.options = model, step, batch, options
        length = options.cache + options.tokens
        self.cache = StaticCache(config=model.config, max_cache_len=length)

    def take_turn(self, prompt: list[int]) -> tuple[float, list[int]]:
        device, options = self.options.device, self.options
        self.cache.reset()
        ids = torch.tensor([prompt] * self.batch, device=device)
        positions = torch.arange(len(prompt), device=device)
        logits = self.model(ids, past_key_values=self.cache, cache_position=positions, logits_to_keep=1).logits
        token = logits[:, -1:].argmax(-1)
        position = torch.tensor([len(prompt)], device=device)
        tokens = [token[0].clone()]
        for step in range(options.skip + options.tokens - 1):
            if step == options.skip - 1:
                synchronize(device)
                start = time.perf_counter()
            logits = self.step(token, past_key_values=self.cache, cache_position=position).logits
            token.copy_(logits[:, -1:].argmax(-1))
            position.add_(1)
            tokens.append(token[0].clone())
        synchronize(device)
        seconds = time.perf_counter() - start
        return seconds / options.tokens, torch.cat(tokens).tolist()


class Seqfuse:
    """The difference of two texts of different lengths: reading the prompt and making the graph cancel out."""

    def __init__(self, model: seqfuse.GPTNeoX, batch: int, options: argparse.Namespace) -> None:
        self.model, self.batch, self.options = model, batch, options

    def take_turn(self, prompt: list[int]) -> tuple[float, list[int]]:
        options = self.options
        seconds = []
        for tokens in (options.skip, options.skip + options.tokens):
            start = time.perf_counter()
            results = self.model.generate([prompt] * self.batch, tokens, eos=[], batch_size=self.batch)
            seconds.append(time.perf_counter() - start)
        return (seconds[1] - seconds[0]) / options.tokens, results[0].ids


def synchronize(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def compare(model: GPTNeoXForCausalLM, ours: seqfuse.GPTNeoX, batch: int, options: argparse.Namespace) -> dict:
    contestants = {"seqfuse": Seqfuse(ours, batch, options), "eager": HuggingFace(model, model, batch, options)}
    if options.compile:
        torch._dynamo.reset()
        compiled = torch.compile(model.forward, mode="reduce-overhead", fullgraph=True)
        contestants["compiled"] = HuggingFace(model, compiled, batch, options)
    prompt = [(i * i + 7) % options.vocabulary for i in range(options.cache - options.skip - options.tokens // 2)]
    times, tokens = {name: [] for name in contestants}, {}
    for turn in range(options.rounds + 1):  # the first is not counted
        for name, contestant in contestants.items():
            seconds, tokens[name] = contestant.take_turn(prompt)
            times[name] += [1e3 * seconds] if turn else []
    return {
        name: {
            "ms a token": [statistics.median(times[name]), min(times[name]), max(times[name])],
            "tokens as eager": sum(a == b for a, b in zip(tokens[name], tokens["eager"])),
            "of": len(tokens["eager"]),
        }
        for name in contestants
    }


@torch.inference_mode()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("layers", 32), ("hidden", 2560), ("heads", 32), ("vocabulary", 50304), ("cache", 1024)):
        parser.add_argument(f"--{name}", type=int, default=default)
    for name, default in (("skip", 16), ("tokens", 128), ("rounds", 5)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--no-compile", dest="compile", action="store_false")
    parser.add_argument("--dtype", default="float16")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("-o", "--output", type=pathlib.Path, help="write JSON to this file too")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        write_model(folder, options)
        dtype = getattr(torch, options.dtype)
        ours = seqfuse.GPTNeoX.from_pretrained(folder, dtype=dtype, device=options.device)
        model = GPTNeoXForCausalLM.from_pretrained(folder, dtype=dtype).to(options.device).eval()
    report = {
        "machine": torch.cuda.get_device_name() if options.device == "cuda" else "CPU",
        "torch": torch.__version__,
        "options": {name: str(value) for name, value in vars(options).items()},
        "batches": {batch: compare(model, ours, batch, options) for batch in options.batches},
    }
    print(json.dumps(report, indent=1))
    if options.output:
        options.output.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
