"""How long training waits for a dump: steps beside seqfuse.DynamicEmbedding.start_dump, and without, and dump().

    python benchmarks/embeddings/background_dump.py --json result.json

A step looks up a batch of ids, multiplies matrices for about --milliseconds, and updates the rows. Stall: what the
steps took longer while a dump was copied and written than as many steps without, over the time of the steps.
"""

import argparse
import json
import pathlib
import statistics
import sys
import tempfile
import time

import torch

import seqfuse


def main() -> None:
    """Prints seconds and the stall, and writes JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--batch", type=int, default=131_072, help="ids of a step")
    parser.add_argument("--milliseconds", type=float, default=100, help="of computation in a step")
    parser.add_argument("--slots-at-once", type=int, default=1 << 16)
    parser.add_argument("--folder", help="where dumps are written; default: a temporary one")
    parser.add_argument("--json", help="file for the results")
    args = parser.parse_args()
    device = torch.device(args.device)

    def wait() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize()

    table = seqfuse.DynamicEmbedding(
        args.dim, capacity=args.rows, initial_capacity=args.rows, optimizer="adam", device=device
    )
    for begin in range(0, args.rows, 1 << 20):
        ids = torch.arange(begin, min(args.rows, begin + (1 << 20)), device=device)
        table(ids).sum().backward()
    size = 4096 if device.type == "cuda" else 256
    matrix = torch.randn(size, size, device=device)
    matrix @ matrix
    wait()
    start = time.perf_counter()
    for _ in range(10):
        matrix @ matrix
    wait()
    products = max(1, round(args.milliseconds / 1e3 / ((time.perf_counter() - start) / 10)))

    def step(advance) -> None:
        ids = torch.randint(args.rows, (args.batch,), device=device)
        rows = table(ids)
        advance()
        for _ in range(products):
            matrix @ matrix
        rows.backward(torch.full_like(rows, 1e-3))

    def seconds_of(steps: int) -> float:
        wait()
        start = time.perf_counter()
        for _ in range(steps):
            step(lambda: None)
        wait()
        return time.perf_counter() - start

    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        path = pathlib.Path(folder) / "items.pt"
        seconds_of(3)
        alone = statistics.median(seconds_of(10) / 10 for _ in range(3))
        start = time.perf_counter()
        table.dump(path)
        whole = time.perf_counter() - start
        begin = time.perf_counter()
        dump = table.start_dump(path, slots_at_once=args.slots_at_once)
        steps = 0
        while not dump.copied:
            step(dump.advance)
            steps += 1
        wait()
        copying = time.perf_counter() - begin
        start = time.perf_counter()
        dump.finish()
        finish = time.perf_counter() - start
        while dump.writing():
            step(lambda: None)
            steps += 1
        dump.wait()
        wait()
        beside = time.perf_counter() - begin
        result = {
            "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
            "command": " ".join(["python", *sys.argv]),
            "date": time.strftime("%Y-%m-%d"),
            "bytes": path.stat().st_size,
            "seconds_a_step_alone": alone,
            "seconds_of_dump": whole,
            "steps_beside": steps,
            "seconds_copying": copying,
            "seconds_of_finish": finish,
            "seconds_beside": beside,
            "stall": beside / (steps * alone) - 1,
        }
    print(
        f"{result['device']}: a step {1e3 * alone:.1f} ms; dump() stops {whole:.2f} s for "
        f"{result['bytes'] / 1e9:.2f} GB; in the "
        f"background {steps} steps took {beside:.2f} s, finish() of it {finish:.3f} s: "
        f"{100 * result['stall']:.1f} % longer than without (goal 5 %)"
    )
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
