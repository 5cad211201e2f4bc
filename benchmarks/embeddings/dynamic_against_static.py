"""Times seqfuse.DynamicEmbedding against static tables of the same ids: lookup, training, evaluation.

    python benchmarks/embeddings/dynamic_against_static.py --json result.json

Peers, of torch alone, with a row for each id of all batches: "dedup": a weight; torch.unique, then rows of the
different ids, whose gradients are summed and whose Adam or SGD updates them in place; "sparse":
nn.Embedding(sparse=True) with torch.optim.SparseAdam or SGD. All train the same rows, which are compared after a
round; SparseAdam adds eps before it corrects the second moment, so its rows differ where gradients are tiny.

Batches are Zipf-distributed; ids of the dynamic table are spread over all int64. Each is used once before the clock
runs, so that all ids have a row ("known"), except in "new": there every batch has ids that no batch had.
"""

import argparse
import json
import platform
import statistics
import sys
import time

import torch
from torch import Tensor, nn

import seqfuse

BETA1, BETA2, EPS, RATE = 0.9, 0.999, 1e-8, 1e-3
GOALS = {"train_adam": 1.15, "train_sgd": 1.3, "forward_adam": 2.0, "evaluate_adam": 1.1}


def zipf_batches(args: argparse.Namespace, device: torch.device) -> tuple[list[Tensor], int]:
    """Batches of indices 0..n - 1, and n: the different ids of all. Some are often there, most rarely."""
    generator = torch.Generator(device).manual_seed(args.seed)
    power = 1 - args.zipf
    drawn = torch.rand(args.batches, args.batch, generator=generator, device=device, dtype=torch.float64)
    ids = ((args.ids**power - 1) * drawn + 1).pow_(1 / power).long()
    unique, indices = torch.unique(ids, return_inverse=True)
    # In no order of frequency.
    order = torch.randperm(len(unique), generator=torch.Generator().manual_seed(args.seed)).to(device)
    return list(order[indices]), len(unique)


def spread(indices: Tensor) -> Tensor:
    """A different int64 for each index: products by an odd number modulo 2^64."""
    return indices * -7046029254386353131


class Dynamic:
    """seqfuse.DynamicEmbedding."""

    def __init__(self, args: argparse.Namespace, optimizer: str, device: torch.device, rows: int) -> None:
        self.table = seqfuse.DynamicEmbedding(
            args.dim,
            capacity=rows,
            initial_capacity=rows,
            optimizer=optimizer,
            learning_rate=RATE,
            device=device,
            device_rows=args.device_rows,
            cached=args.cached,
        )

    def prepare(self, indices: Tensor) -> Tensor:
        return spread(indices)

    def forward(self, ids: Tensor) -> Tensor:
        return self.table(ids)

    def train(self, ids: Tensor, gradient: Tensor) -> None:
        self.table(ids).backward(gradient)

    def evaluate(self, ids: Tensor) -> Tensor:
        with torch.no_grad():
            return self.table(ids)

    def rows(self, indices: Tensor) -> Tensor:
        return self.evaluate(spread(indices))


class Dedup:
    """A weight with a row for each id; the different ids of a batch are found by torch.unique."""

    def __init__(self, args: argparse.Namespace, optimizer: str, device: torch.device) -> None:
        self.weight = torch.zeros(args.rows, args.dim, device=device)
        self.adam = optimizer == "adam"
        if self.adam:
            self.first, self.second = torch.zeros_like(self.weight), torch.zeros_like(self.weight)
        self.steps = 0

    def prepare(self, indices: Tensor) -> Tensor:
        return indices

    def forward(self, ids: Tensor) -> Tensor:
        unique, inverse = torch.unique(ids, return_inverse=True)
        rows = self.weight.index_select(0, unique).requires_grad_()
        self.last = (unique, rows)
        return rows.index_select(0, inverse)

    def train(self, ids: Tensor, gradient: Tensor) -> None:
        self.forward(ids).backward(gradient)
        unique, rows = self.last
        g = rows.grad
        self.steps += 1
        with torch.no_grad():
            if not self.adam:
                self.weight.index_add_(0, unique, g, alpha=-RATE)
                return
            first = self.first.index_select(0, unique).lerp_(g, 1 - BETA1)
            second = self.second.index_select(0, unique).mul_(BETA2).addcmul_(g, g, value=1 - BETA2)
            root = (second / (1 - BETA2**self.steps)).sqrt_().add_(EPS)
            rows.addcdiv_(first, root, value=-RATE / (1 - BETA1**self.steps))
            self.weight.index_copy_(0, unique, rows)
            self.first.index_copy_(0, unique, first)
            self.second.index_copy_(0, unique, second)

    def evaluate(self, ids: Tensor) -> Tensor:
        with torch.no_grad():
            return self.weight.index_select(0, ids)

    def rows(self, indices: Tensor) -> Tensor:
        return self.weight.index_select(0, indices)


class Sparse:
    """nn.Embedding(sparse=True) and a sparse optimiser of torch."""

    def __init__(self, args: argparse.Namespace, optimizer: str, device: torch.device) -> None:
        self.table = nn.Embedding(args.rows, args.dim, sparse=True, device=device)
        self.weight = self.table.weight
        if optimizer == "adam":
            self.optimizer = torch.optim.SparseAdam([self.weight], lr=RATE, betas=(BETA1, BETA2), eps=EPS)
        else:
            self.optimizer = torch.optim.SGD([self.weight], lr=RATE)

    def prepare(self, indices: Tensor) -> Tensor:
        return indices

    def forward(self, ids: Tensor) -> Tensor:
        return self.table(ids)

    def train(self, ids: Tensor, gradient: Tensor) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        self.table(ids).backward(gradient)
        self.optimizer.step()

    def evaluate(self, ids: Tensor) -> Tensor:
        with torch.no_grad():
            return self.table(ids)

    def rows(self, indices: Tensor) -> Tensor:
        return self.weight.detach().index_select(0, indices)


def milliseconds(call, batches: list[Tensor], rounds: int, device: torch.device) -> dict[str, float]:
    """Median and extremes of a call, each batch once a round."""
    times = []
    for _ in range(rounds):
        for batch in batches:
            if device.type == "cuda":
                begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                begin.record()
                call(batch)
                end.record()
                torch.cuda.synchronize()
                times.append(begin.elapsed_time(end))
            else:
                start = time.perf_counter()
                call(batch)
                times.append((time.perf_counter() - start) * 1e3)
    return {"median": statistics.median(times), "lowest": min(times), "highest": max(times)}


def compare(args: argparse.Namespace, optimizer: str, batches: list[Tensor], device: torch.device) -> dict:
    """Milliseconds of each table and call, and how far apart the rows are after the same steps."""
    gradient = torch.randn(args.batch, args.dim, device=device, generator=torch.Generator(device).manual_seed(1))
    gradient *= 1e-3
    known = torch.cat(batches).unique()
    # "new" batches have rows too.
    dynamic = Dynamic(args, optimizer, device, 2 * args.rows)
    with torch.enable_grad():
        dynamic.table(spread(known))  # rows for all
    start = dynamic.rows(known).clone()
    result: dict = {}
    for name, make in (("dynamic", None), ("dedup", Dedup), ("sparse", Sparse)):
        table = dynamic if make is None else make(args, optimizer, device)
        if make is not None:
            with torch.no_grad():
                table.weight[known] = start
        prepared = [table.prepare(batch) for batch in batches]
        for batch in prepared:
            table.train(batch, gradient)
        after = table.rows(known)
        if make is None:
            trained = after.clone()
        else:
            result[f"{name}_difference"] = (after - trained).abs().max().item()
        times = {
            "forward": milliseconds(table.forward, prepared, args.rounds, device),
            "train": milliseconds(lambda batch: table.train(batch, gradient), prepared, args.rounds, device),  # noqa: B023
            "evaluate": milliseconds(table.evaluate, prepared, args.rounds, device),
        }
        if make is None:
            fresh = [spread(batch + args.rows) for batch in batches]
            times["new"] = milliseconds(lambda batch: table.train(batch, gradient), fresh, 1, device)  # noqa: B023
            if args.profile:
                print_profile(lambda: table.train(prepared[0], gradient), device)  # noqa: B023
                print_profile(lambda: table.evaluate(prepared[0]), device)  # noqa: B023
        result[name] = times
        if make is not None:
            del table
    return result


def print_profile(call, device: torch.device) -> None:
    """The kernels of a call, the longest first."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    if device.type == "cuda":
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=activities) as profile:
        call()
        if device.type == "cuda":
            torch.cuda.synchronize()
    key = "cuda_time_total" if device.type == "cuda" else "cpu_time_total"
    print(profile.key_averages().table(sort_by=key, row_limit=30, max_name_column_width=70), file=sys.stderr)


def main() -> None:
    """Prints a table, and writes JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--batch", type=int, default=1_050_000, help="ids of a batch")
    parser.add_argument("--ids", type=int, default=4_000_000_000, help="ids that batches are drawn from")
    parser.add_argument("--zipf", type=float, default=1.05, help="exponent; not 1")
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--batches", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--optimizers", nargs="+", default=["adam", "sgd"], choices=["adam", "sgd"])
    parser.add_argument("--device-rows", type=int, help="rows in GPU memory; default: all")
    parser.add_argument("--cached", action="store_true", help="they are a cache of rows in the host's memory")
    parser.add_argument("--profile", action="store_true", help="print the kernels of a step to stderr")
    parser.add_argument("--json", help="file for the results")
    args = parser.parse_args()
    device = torch.device(args.device)

    batches, args.rows = zipf_batches(args, device)
    different = statistics.mean(len(batch.unique()) for batch in batches)
    report = {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or "cpu",
        "torch": torch.__version__,
        "command": " ".join(["python", *sys.argv]),
        "date": time.strftime("%Y-%m-%d"),
        "different_ids_a_batch": different,
        "rows": args.rows,
        "results": {},
        "ratios": {},
    }
    print(f"{args.batch} ids a batch, {different:.0f} different; tables of {args.rows} rows, dim {args.dim}")
    print(report["device"])
    for optimizer in args.optimizers:
        result = compare(args, optimizer, batches, device)
        report["results"][optimizer] = result
        for call in ("forward", "train", "evaluate"):
            mine = result["dynamic"][call]["median"]
            peers = {name: result[name][call]["median"] for name in ("dedup", "sparse")}
            ratio = mine / min(peers.values())
            report["ratios"][f"{call}_{optimizer}"] = ratio
            goal = GOALS.get(f"{call}_{optimizer}")
            print(
                f"{optimizer:5} {call:9} dynamic {mine:8.3f} ms"
                + "".join(f", {name} {peer:8.3f} ms" for name, peer in peers.items())
                + f"; ratio to the faster {ratio:.2f}"
                + (f" (goal {goal})" if goal else "")
            )
        print(
            f"{optimizer:5} with new ids {result['dynamic']['new']['median']:.3f} ms; largest difference of rows: "
            f"dedup {result['dedup_difference']:.1e}, sparse {result['sparse_difference']:.1e}"
        )
        if device.type == "cuda":
            torch.cuda.empty_cache()
    if args.json:
        with open(args.json, "w") as file:
            json.dump(report, file, indent=1)
            file.write("\n")


if __name__ == "__main__":
    main()
