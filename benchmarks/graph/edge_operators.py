#!/usr/bin/env python3
"""spmm, sddmm and gat_attention beside plain PyTorch: gather and scatter, as PyG does it, and torch.sparse.

    edge_operators.py [--cora gnnbench_cora.npz] [--large gowalla_adj_mat.npz] [--device cuda] [-o RESULT.json]

Graphs are files of CSR arrays (adj_indptr, adj_indices or indptr, indices); without one, a graph of that size with
power-law degrees is drawn. Cora is taken in both directions with self-loops.

Microseconds a call, medians over --rounds rounds in which all programs alternate. On a GPU two of them: `gpu`, from
replays of a CUDA graph of 20 calls, and `call`, a loop of 20 calls with one wait at its end. `forward` is one call;
`both` has the gradients of all inputs. scatter: the faster of index_add_ and scatter_add_; sparse: the faster of int32
and int64 indices, and for gat_attention torch.sparse.mm with weights that scatter made. Each result is compared with
float64. A program that fails has its error in the result instead of times.
"""

import argparse
import datetime
import json
import pathlib
import platform
import statistics
import time

import numpy
import torch
import torch.nn.functional as F

import seqfuse
from seqfuse import Graph

CALLS = 20


def read_graph(file: pathlib.Path, both_directions: bool) -> tuple[torch.Tensor, torch.Tensor, int]:
    """rows, columns, nodes."""
    data = numpy.load(file, allow_pickle=True)
    prefix = "adj_" if "adj_indptr" in data.files else ""
    offsets = torch.from_numpy(data[prefix + "indptr"]).long()
    columns = torch.from_numpy(data[prefix + "indices"]).long()
    nodes = len(offsets) - 1
    rows = torch.repeat_interleave(torch.arange(nodes), offsets.diff())
    if both_directions:
        every = torch.arange(nodes)
        rows, columns = torch.cat([rows, columns, every]), torch.cat([columns, rows, every])
    once = torch.unique(rows * nodes + columns)
    return once // nodes, once % nodes, nodes


def draw_graph(nodes: int, edges: int) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Symmetric, with degrees by a power law."""
    generator = torch.Generator().manual_seed(1)
    weight = torch.arange(1, nodes + 1).float().pow(-0.7)[torch.randperm(nodes, generator=generator)]
    ends = torch.multinomial(weight, edges, replacement=True, generator=generator).view(2, -1)
    once = torch.unique(torch.cat([ends[0] * nodes + ends[1], ends[1] * nodes + ends[0]]))
    return once // nodes, once % nodes, nodes


class Problem:
    """One graph, width and number of heads: inputs, and programs by name for each operator."""

    def __init__(self, rows, columns, nodes, width, heads, dtype, device):
        self.row, self.column, self.nodes = rows.to(device), columns.to(device), nodes
        self.graph = Graph.from_edges(rows, columns, nodes).to(device)
        self.heads, self.dim = heads, width // heads
        torch.manual_seed(width)

        def leaf(*sizes):
            return torch.randn(*sizes).to(device, dtype).requires_grad_()

        self.weights = leaf(self.graph.edges)
        self.x, self.y = leaf(nodes, heads, self.dim), leaf(nodes, heads, self.dim)
        self.left, self.right = leaf(nodes, heads), leaf(nodes, heads)

    def scatter_sum(self, values, how):
        out = values.new_zeros(self.nodes, *values.shape[1:])
        if how == "index_add":
            return out.index_add(0, self.row, values)
        index = self.row.view(-1, *[1] * (values.dim() - 1)).expand_as(values)
        return out.scatter_add(0, index, values)

    def csr(self, values, type):
        return torch.sparse_csr_tensor(
            self.graph.offsets.to(type), self.graph.neighbours.to(type), values, (self.nodes, self.nodes),
            check_invariants=False,
        )  # fmt: skip

    def attention_weights(self, left, right, how):
        """As torch_geometric.utils.softmax."""
        scores = F.leaky_relu(left[self.row] + right[self.column], 0.2)
        index = self.row[:, None].expand_as(scores)
        lowest = scores.new_full((self.nodes, self.heads), -torch.inf)
        top = lowest.scatter_reduce(0, index, scores.detach(), "amax")
        powers = (scores - top[self.row]).exp()
        return powers / (self.scatter_sum(powers, how) + 1e-16)[self.row]

    def programs(self, operator):
        """{name: (function, inputs)}; names with a slash are variants of one program."""
        graph, row, column = self.graph, self.row, self.column
        scatters, types = ("index_add", "scatter_add"), {"int32": torch.int32, "int64": torch.int64}
        found = {}
        if operator == "spmm":
            inputs = (self.weights, self.x)
            found["ours"] = (lambda w, x: seqfuse.spmm(graph, w, x), inputs)
            for how in scatters:
                found["scatter/" + how] = (
                    lambda w, x, how=how: self.scatter_sum(w[:, None, None] * x[column], how),
                    inputs,
                )
            for name, type in types.items():
                # The matrix is made once; its gradient is asked for like that of the weights.
                matrix = self.csr(self.weights.detach().clone(), type).requires_grad_()
                found["sparse/" + name] = (lambda m, x: torch.sparse.mm(m, x[:, 0])[:, None], (matrix, self.x))
        elif operator == "sddmm":
            inputs = (self.x, self.y)
            found["ours"] = (lambda x, y: seqfuse.sddmm(graph, x, y), inputs)
            found["scatter"] = (lambda x, y: (x[row] * y[column]).sum(-1), inputs)
            for name, type in types.items():
                zeros = self.csr(torch.zeros_like(self.weights).detach(), type)
                found["sparse/" + name] = (
                    lambda x, y, m=zeros: torch.sparse.sampled_addmm(m, x[:, 0], y[:, 0].T, beta=0).values()[:, None],
                    inputs,
                )
        else:
            inputs = (self.left, self.right, self.x)
            found["ours"] = (lambda a_l, a_r, x: seqfuse.gat_attention(graph, a_l, a_r, x), inputs)
            for how in scatters:
                found["scatter/" + how] = (
                    lambda a_l, a_r, x, how=how: self.scatter_sum(
                        self.attention_weights(a_l, a_r, how)[..., None] * x[column], how
                    ),
                    inputs,
                )
            for name, type in types.items() if self.heads == 1 else ():
                found["sparse/" + name] = (
                    lambda a_l, a_r, x, type=type: torch.sparse.mm(
                        self.csr(self.attention_weights(a_l, a_r, "index_add")[:, 0], type), x[:, 0]
                    )[:, None],
                    inputs,
                )
        return found


def gradients(function, inputs):
    out = function(*inputs)
    return torch.autograd.grad(out, inputs, torch.ones_like(out))


class Timer:
    """Repeats a program; on a GPU also as a CUDA graph, if it can be one."""

    def __init__(self, program, device):
        self.program, self.device, self.graph, self.no_graph = program, device, None, None
        program()
        if device == "cuda":
            self._capture()

    def _capture(self):
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        try:
            with torch.cuda.stream(stream):
                self.program()
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=stream):
                for _ in range(CALLS):
                    self.program()
            self.graph = graph
        except RuntimeError as error:
            self.no_graph = str(error).splitlines()[0]
        torch.cuda.synchronize()

    def call(self) -> float:
        """Microseconds."""
        self.synchronize()
        start = time.perf_counter()
        for _ in range(CALLS):
            self.program()
        self.synchronize()
        return (time.perf_counter() - start) / CALLS * 1e6

    def gpu(self) -> float:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        self.graph.replay()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / CALLS * 1e3

    def synchronize(self):
        if self.device == "cuda":
            torch.cuda.synchronize()


def measure(programs, options):
    """{name: times or error} of programs without arguments."""
    timers, found = {}, {}
    for name, program in programs.items():
        try:
            timers[name] = Timer(program, options.device)
        except (RuntimeError, NotImplementedError) as error:
            found[name] = {"error": str(error).splitlines()[0]}
    times = {name: {"call": [], "gpu": []} for name in timers}
    for _ in range(options.rounds):
        for name, timer in timers.items():
            times[name]["call"].append(timer.call())
            if timer.graph:
                times[name]["gpu"].append(timer.gpu())
    for name, timer in timers.items():
        found[name] = {clock: round(statistics.median(values), 2) for clock, values in times[name].items() if values}
        if timer.no_graph:
            found[name]["no CUDA graph"] = timer.no_graph
    return found


def fastest(found):
    """Of the variants of one program the faster, by the GPU's time if all have one."""
    best = {}
    for name, times in found.items():
        program = name.split("/")[0]
        if "error" in times:
            best.setdefault(program, times | {"variant": name})
            continue
        clock = "gpu" if "gpu" in times else "call"
        if program not in best or "error" in best[program] or times[clock] < best[program].get(clock, float("inf")):
            best[program] = times | {"variant": name}
    return best


def run_case(problem, operator, options):
    programs = problem.programs(operator)
    function, inputs = programs.get("scatter/index_add") or programs["scatter"]
    with torch.no_grad():
        reference = function(*(t.detach().double() for t in inputs))
    errors, forward, both = {}, {}, {}
    for name, (function, inputs) in programs.items():
        forward[name] = lambda f=function, i=inputs: torch.no_grad()(f)(*i)
        both[name] = lambda f=function, i=inputs: gradients(f, i)
        try:
            errors[name] = float((forward[name]().double() - reference).abs().max() / reference.abs().max())
        except (RuntimeError, NotImplementedError) as error:
            errors[name] = str(error).splitlines()[0]
    del reference
    programs_of = {"forward": forward, "both": both}
    return {passes: fastest(measure(programs_of[passes], options)) for passes in options.passes} | {
        "largest error over the largest element": errors
    }


def ratio(found, other):
    """How many times as fast ours is, by the GPU's time if both have it."""
    ours, times = found["ours"], found.get(other, {})
    clock = "gpu" if "gpu" in ours and "gpu" in times else "call"
    return round(times[clock] / ours[clock], 2) if clock in times and clock in ours else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cora", type=pathlib.Path)
    parser.add_argument("--large", type=pathlib.Path)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--widths", type=int, nargs="+", default=[32, 64, 128, 256])
    parser.add_argument("--dtypes", nargs="+", help="default: float32, and float16 on a GPU")
    parser.add_argument("--graphs", nargs="+", default=["cora", "large"])
    parser.add_argument("--passes", nargs="+", choices=["forward", "both"], default=["forward", "both"])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("-o", "--output", type=pathlib.Path)
    options = parser.parse_args()
    dtypes = options.dtypes or (["float32", "float16"] if options.device == "cuda" else ["float32"])
    graphs = {
        "cora": read_graph(options.cora, True) if options.cora else draw_graph(2708, 10600),
        "large": read_graph(options.large, False) if options.large else draw_graph(70839, 1700000),
    }
    on_gpu = options.device == "cuda"
    result = {
        "device": torch.cuda.get_device_name() if on_gpu else platform.processor() or platform.machine(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "options": {name: v if isinstance(v, (int, list)) else str(v) for name, v in vars(options).items()},
        "cases": [],
    }  # fmt: skip
    for name in options.graphs:
        rows, columns, nodes = graphs[name]
        for dtype in dtypes:
            for operator, heads, width in [
                (operator, heads, width)
                for operator, heads in (("spmm", 1), ("sddmm", 1), ("gat_attention", 1), ("gat_attention", 8))
                for width in options.widths
            ]:
                problem = Problem(rows, columns, nodes, width, heads, getattr(torch, dtype), options.device)
                case = {"graph": name, "nodes": nodes, "edges": problem.graph.edges, "operator": operator}
                case |= {"heads": heads, "width": width, "dtype": dtype} | run_case(problem, operator, options)
                result["cases"].append(case)
                shown = []
                for passes in options.passes:
                    found = case[passes]
                    times = {program: t.get("gpu", t.get("call")) for program, t in found.items()}
                    ratios = {other: ratio(found, other) for other in found if other != "ours"}
                    case[passes]["times as fast"] = ratios
                    shown.append(f"{passes} {times} {ratios}")
                print(f"{name} {operator} {heads} heads {width} {dtype}: " + "; ".join(shown), flush=True)
                if options.output:  # after each case: a run that is stopped keeps what it has
                    part = options.output.with_suffix(".part")
                    part.write_text(json.dumps(result, indent=1) + "\n")
                    part.replace(options.output)


if __name__ == "__main__":
    main()
