"""hstu_attn_varlen_func and hstu_attention against the plain formula, for each argument of the mask."""

import pytest
import torch

import reference
import seqfuse
from seqfuse.compat.hstu import hstu_attn_varlen_func

LENGTHS = [5, 0, 1, 9]
LONGEST = 9
ALPHA = 0.7


def inputs(device, queries=LENGTHS):
    dtype = torch.double if device == "cpu" else torch.float
    offsets = [
        seqfuse.lengths_to_offsets(torch.tensor(lengths, dtype=torch.int32, device=device)).int()
        for lengths in (queries, LENGTHS)
    ]
    rows = [sum(queries), sum(LENGTHS), sum(LENGTHS)]
    return [torch.randn(r, 2, 8, dtype=dtype, device=device).requires_grad_() for r in rows], offsets


def counts(values, device):
    return torch.tensor(values, dtype=torch.int32, device=device)


def expect_equal(tensors, ours, plain):
    torch.testing.assert_close(ours, plain, rtol=1e-4, atol=1e-5)
    gradient = torch.randn_like(ours)
    torch.testing.assert_close(
        torch.autograd.grad(ours, tensors, gradient),
        torch.autograd.grad(plain, tensors, gradient),
        rtol=1e-3,
        atol=1e-5,
    )


@pytest.mark.parametrize(
    ("ours", "plain"),
    [
        ({"window_size": (-1, 0)}, {}),
        ({}, {"causal": False}),
        ({"window_size": (2, 0)}, {"window": 2}),
        ({"window_size": (2, 2)}, {"window": 2, "causal": False}),
        ({"window_size": (-1, 0), "scaling_seqlen": 31}, {"scaling_seqlen": 31}),
        ({"window_size": (-1, 0), "num_contexts": [2, 0, 1, 3]}, {"contexts": [2, 0, 1, 3]}),
        ({"window_size": (-1, 0), "num_targets": [2, 0, 1, 3]}, {"targets": [2, 0, 1, 3]}),
        (
            {"window_size": (-1, 0), "num_targets": [2, 0, 0, 4], "target_group_size": 2},
            {"targets": [2, 0, 0, 4], "group": 2},
        ),
        (
            {"window_size": (2, 0), "num_contexts": [2, 0, 0, 1], "num_targets": [1, 0, 0, 4]},
            {"window": 2, "contexts": [2, 0, 0, 1], "targets": [1, 0, 0, 4]},
        ),
    ],
)
@pytest.mark.parametrize("order", ["older", "newer", "newer by name"])
def test_masks(ours, plain, order, device):
    tensors, (offsets, _) = inputs(device)
    ours = {n: counts(v, device) if isinstance(v, list) else v for n, v in ours.items()}
    if order == "older":
        out = hstu_attn_varlen_func(*tensors, offsets, offsets, LONGEST, LONGEST, alpha=ALPHA, **ours)
    elif order == "newer":
        scaling = ours.pop("scaling_seqlen", -1)
        out = hstu_attn_varlen_func(
            *tensors, offsets, offsets, None, None, LONGEST, LONGEST, scaling, alpha=ALPHA, **ours
        )
    else:
        used = {"seqused_q": None, "seqused_k": None, "max_seqlen_q": LONGEST, "max_seqlen_k": LONGEST}
        out = hstu_attn_varlen_func(*tensors, offsets, offsets, alpha=ALPHA, **used, **ours)
    options = {"alpha": ALPHA, "scaling_seqlen": LONGEST, **plain}
    expect_equal(tensors, out, reference.attention(*tensors, offsets, offsets, **options))


def test_fewer_queries_than_keys(device):
    tensors, (q_offsets, k_offsets) = inputs(device, queries=[2, 0, 1, 4])
    out = hstu_attn_varlen_func(*tensors, q_offsets, k_offsets, 4, LONGEST, window_size=(-1, 0), scaling_seqlen=9)
    plain = reference.attention(*tensors, q_offsets, k_offsets, alpha=1, scaling_seqlen=9)
    expect_equal(tensors, out, plain)


def test_full_attention_of_the_last(device):
    tensors, (offsets, _) = inputs(device)
    targets = counts([1, 0, 0, 2], device).long()
    options = {"alpha": ALPHA, "scaling_seqlen": 8}
    out = seqfuse.hstu_attention(
        *tensors, offsets, **options, max_attn_len=1, min_full_attn_seq_len=2, num_targets=targets, max_seqlen=LONGEST
    )
    plain = reference.attention(*tensors, offsets, offsets, **options, window=1, full=2, targets=[1, 0, 0, 2])
    expect_equal(tensors, out, plain)


def test_varlen_function_compiles(device):
    tensors, (offsets, _) = inputs(device)

    def call(q, k, v, contexts):
        return hstu_attn_varlen_func(
            q, k, v, offsets, offsets, LONGEST, LONGEST, num_contexts=contexts, window_size=(-1, 0)
        )

    contexts = counts([2, 0, 1, 3], device)
    compiled = torch.compile(call, backend="aot_eager", fullgraph=True)
    expect_equal(tensors, compiled(*tensors, contexts), call(*tensors, contexts))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("seqused_q", torch.tensor([1])),
        ("seqused_k", torch.tensor([1])),
        ("rab", torch.zeros(1)),
        ("has_drab", True),
        ("kv_cache", torch.zeros(1)),
        ("page_offsets", torch.zeros(1)),
        ("page_ids", torch.zeros(1)),
        ("last_page_lens", torch.zeros(1)),
        ("seq_offsets_t", torch.zeros(1)),
        ("cu_seqlens_t", torch.zeros(1)),
        ("func", torch.zeros(1)),
        ("quant_mode", 1),
        ("window_size", (0, 0)),
        ("window_size", (3, 1)),
    ],
)
def test_unsupported_arguments_are_named(name, value):
    tensors, (offsets, _) = inputs("cpu")
    with pytest.raises(NotImplementedError, match=name):
        hstu_attn_varlen_func(*tensors, offsets, offsets, LONGEST, LONGEST, **{name: value})


def test_wrong_arguments_are_explained():
    tensors, (offsets, _) = inputs("cpu")
    with pytest.raises(TypeError, match="unexpected argument beta"):
        hstu_attn_varlen_func(*tensors, offsets, offsets, LONGEST, LONGEST, beta=1)
    with pytest.raises(TypeError, match="max_seqlen_q is given twice"):
        hstu_attn_varlen_func(*tensors, offsets, offsets, LONGEST, LONGEST, max_seqlen_q=1)
    with pytest.raises(TypeError, match="positional arguments"):
        hstu_attn_varlen_func(*tensors, offsets, offsets, *range(30))
    with pytest.raises(ValueError, match="need a causal window"):
        hstu_attn_varlen_func(*tensors, offsets, offsets, LONGEST, LONGEST, num_targets=counts([1, 0, 0, 1], "cpu"))
    q, k, v = tensors
    with pytest.raises(ValueError, match="hstu_attention: k is .* head_dim must match"):
        hstu_attn_varlen_func(q, k[..., :4], v, offsets, offsets, LONGEST, LONGEST)
    with pytest.raises(ValueError, match="q_offsets ends with"):
        hstu_attn_varlen_func(q, k, v, offsets - offsets, offsets, LONGEST, LONGEST)
