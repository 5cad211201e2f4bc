"""Arguments for every operator: small jagged tensors with an empty sequence; helpers of GPU tests."""

from contextlib import contextmanager

import pytest
import torch
from torch import tensor

import seqfuse  # noqa: F401 (loads the operators)

HALF_TYPES = [torch.float16, torch.bfloat16]
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU on this machine")


@contextmanager
def deterministic():
    """Operators without atomics: the same kernels give the same bits."""
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


LENGTHS = [3, 0, 4]
TOTAL, LONGEST = sum(LENGTHS), max(LENGTHS)


def make_cases(device, dtype=None):
    """(operator, arguments) pairs; tensors of dtype, or float64 on the CPU, float32 on CUDA, that require gradients."""
    if dtype is None:
        dtype = torch.double if device == "cpu" else torch.float

    def random(*sizes):
        return torch.randn(sizes, dtype=dtype, device=device).requires_grad_()

    def integers(*sizes, high=9, dtype=torch.long):
        return torch.randint(high, sizes, dtype=dtype, device=device)

    def strided(rows, columns):
        return torch.randn(rows, columns + 2, dtype=dtype, device=device)[:, 1:-1].requires_grad_()

    offsets = tensor([0, 3, 3, 7], device=device)
    others = tensor([0, 1, 4, 4], device=device)
    counts = tensor([1, 0, 2], device=device)
    q, k, v = (random(TOTAL, 2, 4) for _ in range(3))
    nothing = [None] * 6  # of attention: counts, biases and times
    everything = [
        *(counts, counts, random(2 * LONGEST - 1), random(5)),
        *(integers(TOTAL, high=900), integers(3, high=999)),
    ]

    def layer_weights(norm_weight, norm_bias, uvqk_bias, output_norm_weight, output_norm_bias, output_bias):
        """Arguments of hstu_layer with 2 heads of 3 and rows of 4."""
        norms = (norm_weight, norm_bias, random(4, 24), uvqk_bias, output_norm_weight, output_norm_bias)
        return *norms, random(6, 4), output_bias, offsets, 2, 1e-5

    # Every query sees a key: the log-sum-exp of none is -inf, which has no differences.
    heads, shared = random(2, 2, 5, 3), [random(2, 1, 7, 3) for _ in range(2)]
    tables = [tensor([5, 5]), tensor([7, 4])]
    kinds = ["window", "lengths", "and"]
    made = torch.ops.seqfuse.build_block_mask(kinds, [3, 0, 0], [5, 2, 1], tables, 5, 7, torch.device(device))
    lists, sizes = made[:-1], made[-1].tolist()

    # Rows of 3, 0 and 2 edges.
    edges = torch.ops.seqfuse.build_graph(tensor([0, 3, 3, 5]), tensor([0, 1, 3, 1, 2]), 4, torch.device(device))
    graph = (edges[0], [3, 4, edges[1]])

    return [
        ("layer_norm", (strided(5, 4), random(4), random(4), 1e-5)),
        ("layer_norm", (random(5, 4), random(4), None, 1e-5)),
        ("layer_norm", (random(5, 4), None, None, 1e-5)),
        ("layer_norm_gate", (random(5, 4), strided(5, 4), random(4), random(4), 1e-5, 0.3, 77)),
        ("layer_norm_gate", (random(5, 4), random(5, 4), None, None, 1e-5, 0.0, 0)),
        ("layer_norm_residual", (strided(5, 4), random(5, 4), random(4), random(4), 1e-5)),
        ("add_layer_norm", ([random(5, 4), random(5, 4)], random(4), None, 1e-5)),
        ("dual_layer_norm", (random(5, 4), random(4), random(4), None, random(4), 1e-5)),
        ("add_dual_layer_norm", ([random(5, 4) for _ in range(3)], *(random(4) for _ in range(4)), 1e-5)),
        ("l2_normalize", (random(5, 4), 1e-6)),
        ("dropout", (random(5, 4), 0.4, 3)),
        ("embedding_lookup", (random(9, 3), integers(TOTAL))),
        ("lengths_to_offsets", (tensor(LENGTHS, device=device),)),
        ("jagged_concat", ([random(TOTAL, 3), random(4, 3)], [offsets, others])),
        ("jagged_concat", ([random(TOTAL, 3)], [offsets.int()])),
        ("jagged_split", (random(TOTAL + 4, 3), [offsets, others], [TOTAL, 4])),
        ("jagged_to_dense", (random(TOTAL, 3), offsets, 3, 1.5)),
        ("dense_to_jagged", (random(3, LONGEST, 2), offsets, TOTAL)),
        ("jagged_repeat", (random(3, 4), offsets, TOTAL)),
        ("interleave", (random(3, 4), random(3, 4))),
        ("position_encoding", (random(TOTAL, 3), random(2, 3), offsets, counts, 1.5)),
        ("position_encoding", (random(TOTAL, 3), random(5, 3), offsets, None, 1.0)),
        ("time_encoding", (random(TOTAL, 3), random(5, 3), offsets, integers(TOTAL, high=900), 60.0)),
        (
            "sampled_softmax_loss",
            (random(TOTAL, 3), random(9, 3), integers(TOTAL), integers(TOTAL, 5, dtype=torch.int32), 0.5),
        ),
        ("full_softmax_loss", (random(TOTAL, 3), random(9, 3), integers(TOTAL), torch.arange(9, device=device), 0.5)),
        (
            "full_softmax_loss",
            (
                *(random(TOTAL, 3), random(9, 3), integers(TOTAL), torch.arange(9, device=device), 0.5),
                *(integers(TOTAL), offsets),
            ),
        ),
        ("sample_uniform", (torch.arange(9, device=device), 4, 3, 11)),
        ("hstu_attention", (q, k, v, offsets, offsets, 0.5, 8, True, 1, 0, 0, *nothing, LONGEST)),
        ("hstu_attention", (q, k, v, offsets, offsets, 0.5, 8, True, 1, 2, 1, *everything, LONGEST)),
        # On a GPU not in float32.
        ("masked_attention", (heads, *shared, lists, sizes, 0.7) if device == "cpu" else None),
        ("spmm", (random(5, 2), random(4, 2, 3), *graph)),
        ("spmm", (None, random(4, 1, 3), *graph)),
        ("sddmm", (random(3, 2, 4), random(4, 2, 4), *graph)),
        ("gat_attention", (random(3, 2), random(4, 2), random(4, 2, 3), *graph, 0.2, 0.0, 0)),
        ("gat_attention", (random(3, 2), random(4, 2), random(4, 2, 3), *graph, 0.1, 0.4, 7)),
        (
            "hstu_layer",
            (
                *(random(TOTAL, 4), *layer_weights(*map(random, (4, 4, 24, 6, 6, 4))), 0.3, 7, False, False),
                *(0.5, 8, True, 1, 0, 0, *nothing, LONGEST),
            ),
        ),
        (
            "hstu_layer",
            (
                *(random(TOTAL, 4), *layer_weights(*[None] * 6), 0.0, 7, True, True),
                *(0.5, 8, True, 1, 2, 1, *everything, LONGEST),
            ),
        ),
    ]


def make_case(index, device):
    """One of them; skips the test if the operator does not take these tensors on that device."""
    name, arguments = make_cases(device)[index]
    if arguments is None:
        pytest.skip(f"{name} is not for {device} in this dtype")
    return name, arguments


NAMES = [name for name, _ in make_cases("cpu")]
