"""hstu_attn_varlen_func and hstu_attention against the plain formula, for each argument of the mask."""

import inspect

import pytest
import torch

import reference
import seqfuse
from cases import HALF_TYPES, deterministic, needs_gpu
from seqfuse.compat.hstu import hstu_attn_varlen_func

LENGTHS = [5, 0, 1, 9]
LONGEST = 9
ALPHA = 0.7

LONG_LENGTHS = [70, 0, 1, 130]  # several tiles of the kernels for 16 bits

# Options of hstu_attn_varlen_func, and the same options for reference.attention; counts are for four sequences.
MASKS = [
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
]


def inputs(device, queries=None, lengths=LENGTHS, head_dim=8, dtype=None):
    """q, k and v, and the offsets of queries and of keys."""
    if dtype is None:
        dtype = torch.double if device == "cpu" else torch.float
    queries = lengths if queries is None else queries
    offsets = [
        seqfuse.lengths_to_offsets(torch.tensor(values, dtype=torch.int32, device=device)).int()
        for values in (queries, lengths)
    ]
    rows = [sum(queries), sum(lengths), sum(lengths)]
    return [torch.randn(r, 2, head_dim, dtype=dtype, device=device).requires_grad_() for r in rows], offsets


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


def call_in_order(order, tensors, offsets, longest, options):
    """hstu_attn_varlen_func with its arguments in one of the orders; counts in options are lists."""
    device = tensors[0].device
    options = {n: counts(v, device) if isinstance(v, list) else v for n, v in options.items()}
    if order == "older":
        return hstu_attn_varlen_func(*tensors, offsets, offsets, longest, longest, **options)
    if order == "newer":
        scaling = options.pop("scaling_seqlen", -1)
        return hstu_attn_varlen_func(*tensors, offsets, offsets, None, None, longest, longest, scaling, **options)
    used = {"seqused_q": None, "seqused_k": None, "max_seqlen_q": longest, "max_seqlen_k": longest}
    return hstu_attn_varlen_func(*tensors, offsets, offsets, **used, **options)


@pytest.mark.parametrize(("ours", "plain"), MASKS)
@pytest.mark.parametrize("order", ["older", "newer", "newer by name"])
def test_masks(ours, plain, order, device):
    tensors, (offsets, _) = inputs(device)
    out = call_in_order(order, tensors, offsets, LONGEST, {"alpha": ALPHA, **ours})
    options = {"alpha": ALPHA, "scaling_seqlen": LONGEST, **plain}
    expect_equal(tensors, out, reference.attention(*tensors, offsets, offsets, **options))


def results(attention, tensors, dout):
    """attention(q, k, v) and its gradients."""
    leaves = [t.detach().clone().requires_grad_() for t in tensors]
    out = attention(*leaves)
    gradients = torch.autograd.grad(out, leaves, dout.to(out.dtype))
    assert all(t.dtype == leaves[0].dtype for t in (out, *gradients))
    return {"out": out.detach(), **dict(zip("qkv", gradients))}


def expect_exact(ours, plain, tensors, offsets):
    """The oracle rule for ours(q, k, v, *offsets), with plain in the same dtype and ours in float64 as reference."""
    dout = torch.randn_like(tensors[0])
    there = [t.cpu() for t in offsets]
    exact = results(lambda *qkv: ours(*qkv, *there), [t.cpu().double() for t in tensors], dout.cpu().double())
    actual, framework = (results(lambda *qkv, f=f: f(*qkv, *offsets), tensors, dout) for f in (ours, plain))
    reference.expect_oracle_rule(actual, framework, exact, tensors[0].dtype)


@needs_gpu
@pytest.mark.parametrize(("ours", "plain"), MASKS)
@pytest.mark.parametrize("order", ["older", "newer"])
@pytest.mark.parametrize("dtype", HALF_TYPES)
def test_masks_in_16_bits(dtype, ours, plain, order):
    longest = max(LONG_LENGTHS)
    tensors, (offsets, _) = inputs("cuda", lengths=LONG_LENGTHS, head_dim=64, dtype=dtype)

    def attention(q, k, v, offsets):
        return call_in_order(order, (q, k, v), offsets, longest, {"alpha": 0.125, **ours})

    def in_pytorch(q, k, v, offsets):
        return reference.attention(q, k, v, offsets, offsets, **{"alpha": 0.125, "scaling_seqlen": longest, **plain})

    expect_exact(attention, in_pytorch, tensors, [offsets])


@needs_gpu
@pytest.mark.parametrize("head_dim", [32, 50, 128, 256])
@pytest.mark.parametrize("dtype", HALF_TYPES)
def test_fewer_queries_than_keys_in_16_bits(dtype, head_dim):
    queries = [40, 0, 1, 66]
    tensors, offsets = inputs("cuda", queries, LONG_LENGTHS, head_dim, dtype)
    options = {"alpha": head_dim**-0.5, "scaling_seqlen": 130}

    def attention(q, k, v, q_offsets, k_offsets):
        return hstu_attn_varlen_func(q, k, v, q_offsets, k_offsets, 66, 130, window_size=(-1, 0), **options)

    def in_pytorch(q, k, v, q_offsets, k_offsets):
        return reference.attention(q, k, v, q_offsets, k_offsets, **options)

    expect_exact(attention, in_pytorch, tensors, offsets)


@needs_gpu
@pytest.mark.parametrize("dtype", [torch.float, *HALF_TYPES])
def test_16_bits_do_not_go_by_products(dtype):
    tensors, (offsets, _) = inputs("cuda", dtype=dtype)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as recorded:
        out = hstu_attn_varlen_func(*tensors, offsets, offsets, LONGEST, LONGEST, window_size=(-1, 0))
        torch.autograd.grad(out, tensors, torch.ones_like(out))
    names = {event.key for event in recorded.key_averages()}
    assert "seqfuse::hstu_attention" in names
    assert ("aten::matmul" in names) == (dtype == torch.float)


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


@pytest.mark.parametrize("window", [0, 2])
@pytest.mark.parametrize("full", [0, 2])
def test_contexts_and_targets_without_order(window, full, device):
    tensors, (offsets, _) = inputs(device)
    contexts, targets = [2, 0, 1, 3], [1, 0, 0, 4]
    options = {"alpha": ALPHA, "scaling_seqlen": 8, "causal": False}
    out = seqfuse.hstu_attention(
        *(*tensors, offsets),
        **options,
        max_attn_len=window,
        min_full_attn_seq_len=full,
        target_group_size=2,
        num_contexts=counts(contexts, device).long(),
        num_targets=counts(targets, device).long(),
        max_seqlen=LONGEST,
    )
    masks = {"window": window, "full": full, "group": 2, "contexts": contexts, "targets": targets}
    expect_equal(tensors, out, reference.attention(*tensors, offsets, offsets, **options, **masks))


@pytest.mark.parametrize("order", ["older", "newer", "newer by name"])
def test_varlen_function_compiles(order, device):
    options = {"num_contexts": [2, 0, 1, 3], "window_size": (-1, 0)}

    def call(q, k, v, offsets, longest):
        return call_in_order(order, (q, k, v), offsets, longest, options)

    compiled = torch.compile(call, backend="aot_eager", fullgraph=True)
    for lengths in (LENGTHS, LONG_LENGTHS, [3, 0, 2, 4]):
        tensors, (offsets, _) = inputs(device, lengths=lengths)
        arguments = (*tensors, offsets, max(lengths))
        expect_equal(tensors, compiled(*arguments), call(*arguments))


@needs_gpu
@pytest.mark.parametrize("order", ["older", "newer", "newer by name"])
@pytest.mark.parametrize("dtype", HALF_TYPES)
def test_varlen_function_compiles_in_16_bits(dtype, order):
    options = {"num_contexts": [2, 0, 1, 3], "window_size": (-1, 0)}

    def call(q, k, v, offsets, longest):
        return call_in_order(order, (q, k, v), offsets, longest, options)

    compiled = torch.compile(call, backend="aot_eager", fullgraph=True)
    with deterministic():
        for lengths in (LENGTHS, LONG_LENGTHS, [3, 0, 2, 4]):
            tensors, (offsets, _) = inputs("cuda", lengths=lengths, head_dim=64, dtype=dtype)
            dout, others = torch.randn_like(tensors[0]), (offsets, max(lengths))
            ours, plain = (
                results(lambda *qkv, f=f, others=others: f(*qkv, *others), tensors, dout) for f in (compiled, call)
            )
            torch.testing.assert_close(ours, plain, rtol=0, atol=0)


# The published orders, each from max_seqlen_q on, or from seqused_q on, with values that change the result.
OLDER_ORDER = {
    **{"max_seqlen_q": LONGEST, "max_seqlen_k": LONGEST, "num_contexts": [2, 0, 0, 1], "num_targets": [1, 0, 0, 4]},
    **{"target_group_size": 2, "window_size": (3, 0), "alpha": ALPHA, "rab": None, "has_drab": False},
    **{"kv_cache": None, "page_offsets": None, "page_ids": None, "last_page_lens": None, "cu_seqlens_t": None},
    **{"func": None, "scaling_seqlen": 31},
}
NEWER_ORDER = {
    **{"seqused_q": None, "seqused_k": None, "max_seqlen_q": LONGEST, "max_seqlen_k": LONGEST, "scaling_seqlen": 31},
    **{"num_contexts": [2, 0, 0, 1], "num_targets": [1, 0, 0, 4], "target_group_size": 2, "window_size": (3, 0)},
    **{"alpha": ALPHA, "rab": None, "has_drab": False, "kv_cache": None, "page_offsets": None, "page_ids": None},
    **{"last_page_lens": None, "func": None, "quant_mode": -1},
}
ORDERS = [OLDER_ORDER, NEWER_ORDER]


@pytest.mark.parametrize("order", ORDERS, ids=["older", "newer"])
def test_every_argument_goes_by_position_or_by_name(order):
    tensors, (offsets, _) = inputs("cpu")
    order = {n: counts(v, "cpu") if isinstance(v, list) else v for n, v in order.items()}
    names, values = list(order), list(order.values())
    plain = reference.attention(
        *(*tensors, offsets, offsets),
        **{"alpha": ALPHA, "scaling_seqlen": 31, "window": 3, "group": 2},
        **{"contexts": [2, 0, 0, 1], "targets": [1, 0, 0, 4]},
    )
    for cut in range(len(names) + 1):
        by_name = dict(zip(names[cut:], values[cut:]))
        out = hstu_attn_varlen_func(*tensors, offsets, offsets, *values[:cut], **by_name)
        torch.testing.assert_close(out, plain)
    with pytest.raises(TypeError, match="hstu_attn_varlen_func.* positional arguments"):
        hstu_attn_varlen_func(*tensors, offsets, offsets, *values, None)


@pytest.mark.parametrize("order", ORDERS, ids=["older", "newer"])
@pytest.mark.parametrize("name", ["rab", "kv_cache", "page_offsets", "page_ids", "last_page_lens", "func"])
def test_unsupported_arguments_are_named_by_position(name, order):
    tensors, (offsets, _) = inputs("cpu")
    values = [counts(v, "cpu") if isinstance(v, list) else v for v in order.values()]
    values[list(order).index(name)] = torch.zeros(1)
    with pytest.raises(NotImplementedError, match=f"hstu_attn_varlen_func: {name} "):
        hstu_attn_varlen_func(*tensors, offsets, offsets, *values)


def test_signature_shows_every_argument():
    parameters = inspect.signature(hstu_attn_varlen_func).parameters
    before = ["q", "k", "v", "cu_seqlens_q", "cu_seqlens_k"]
    by_position = [name for name, p in parameters.items() if p.kind is p.POSITIONAL_OR_KEYWORD]
    assert by_position == [*before, *OLDER_ORDER]
    assert set(parameters) == {*before, *OLDER_ORDER, *NEWER_ORDER, "seq_offsets_t"}
    documented = inspect.getdoc(hstu_attn_varlen_func)
    assert all(name in documented for name in parameters)


@pytest.mark.parametrize("order", ["older", "newer", "newer by name"])
@pytest.mark.parametrize("compiles", [False, True])
def test_a_number_may_be_a_tensor(compiles, order, device):
    tensors, (offsets, _) = inputs(device)

    def call(q, k, v, offsets, longest):
        return call_in_order(order, (q, k, v), offsets, longest, {"alpha": ALPHA, "window_size": (-1, 0)})

    function = torch.compile(call, backend="aot_eager", fullgraph=True) if compiles else call
    expected = call(*tensors, offsets, LONGEST)
    for dtype in (torch.int32, torch.int64):
        longest = torch.tensor(LONGEST, dtype=dtype, device=device)
        torch.testing.assert_close(function(*tensors, offsets, longest), expected)


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


# After cu_seqlens_k: arguments by position, by name, and the expected message.
WRONG_TYPES = [
    ((), {}, r"\(\) missing 2 required positional arguments: 'max_seqlen_q' and 'max_seqlen_k'"),
    ((None, None), {}, r"\(\) missing 2 required positional arguments: 'max_seqlen_q' and 'max_seqlen_k'"),
    ((LONGEST,), {}, r"\(\) missing 1 required positional argument: 'max_seqlen_k'"),
    ((LONGEST, LONGEST), {"beta": 1}, r"\(\) got an unexpected keyword argument 'beta'"),
    ((LONGEST, LONGEST), {"max_seqlen_q": 1}, r"\(\) got multiple values for argument 'max_seqlen_q'"),
    ((None, None, LONGEST), {"max_seqlen_q": 1}, r"\(\) got multiple values for argument 'max_seqlen_q'"),
    (range(30), {}, r"\(\) takes from 7 to 21 positional arguments but 35 were given"),
    ((None, *range(30)), {}, r"\(\) takes at most 23 positional arguments .* 36 were given"),
    ((LONGEST, 9.0), {}, ": max_seqlen_k is 9.0; expected an integer"),
    ((torch.tensor(9.0), LONGEST), {}, r": max_seqlen_q is a tensor \[\] of torch.float32; expected an integer"),
    ((LONGEST, torch.tensor([9])), {}, r": max_seqlen_k is a tensor \[1\] of torch.int64; expected an integer"),
    ((LONGEST, LONGEST), {"scaling_seqlen": None}, ": scaling_seqlen is None; expected an integer"),
    ((LONGEST, LONGEST), {"target_group_size": "2"}, ": target_group_size is '2'; expected an integer"),
    ((LONGEST, LONGEST), {"window_size": 3}, ": window_size is 3; expected two numbers"),
    ((LONGEST, LONGEST), {"window_size": (2.0, 0)}, ": window_size is 2.0; expected an integer"),
    ((LONGEST, LONGEST), {"window_size": ("a", 0)}, ": window_size is 'a'; expected an integer"),
    ((LONGEST, LONGEST), {"alpha": None}, ": alpha is None; expected a number"),
    ((LONGEST, LONGEST, [1]), {"window_size": (-1, 0)}, r": num_contexts is \[1\]; expected a tensor of integers"),
    (
        (LONGEST, LONGEST, None, torch.ones(4)),
        {"window_size": (-1, 0)},
        r": num_targets is a tensor \[4\] of torch.float",
    ),
]


@pytest.mark.parametrize(("arguments", "keywords", "message"), WRONG_TYPES)
def test_wrong_types_are_explained(arguments, keywords, message):
    tensors, (offsets, _) = inputs("cpu")
    with pytest.raises(TypeError, match="^hstu_attn_varlen_func" + message):
        hstu_attn_varlen_func(*tensors, offsets, offsets, *arguments, **keywords)


@pytest.mark.parametrize("order", ["older", "newer", "newer by name"])
@pytest.mark.parametrize("sequences", [0, 3])
def test_a_batch_without_rows_gives_none(sequences, order, device):
    tensors, (offsets, _) = inputs(device, lengths=[0] * sequences)
    out = call_in_order(order, tensors, offsets, 0, {"alpha": ALPHA, "window_size": (-1, 0)})
    assert out.shape == tensors[0].shape and out.dtype == tensors[0].dtype
    assert all(g.shape == t.shape for g, t in zip(torch.autograd.grad(out.sum(), tensors), tensors))


def test_a_longest_sequence_of_zero_beside_rows_is_refused():
    tensors, (offsets, _) = inputs("cpu")
    with pytest.raises(ValueError, match="hstu_attn_varlen_func: max_seqlen_q is 0, but q has 15 rows"):
        hstu_attn_varlen_func(*tensors, offsets, offsets, 0, LONGEST)


def test_forgotten_tensors_are_named():
    tensors, (offsets, _) = inputs("cpu")
    with pytest.raises(TypeError, match="^hstu_attn_varlen_func.* missing 1 required .*: 'cu_seqlens_k'"):
        hstu_attn_varlen_func(*tensors, offsets)


@pytest.mark.parametrize("offsets", [None, [0, 5, 5, 6, 15]])
def test_offsets_are_tensors(offsets):
    tensors, _ = inputs("cpu")
    with pytest.raises(TypeError, match="hstu_attn_varlen_func: cu_seqlens_q is .*; expected a tensor"):
        hstu_attn_varlen_func(*tensors, offsets, offsets, LONGEST, LONGEST)


def test_wrong_arguments_are_explained():
    tensors, (offsets, _) = inputs("cpu")
    with pytest.raises(ValueError, match="need a causal window"):
        hstu_attn_varlen_func(*tensors, offsets, offsets, LONGEST, LONGEST, num_targets=counts([1, 0, 0, 1], "cpu"))
    q, k, v = tensors
    with pytest.raises(ValueError, match="hstu_attention: k is .* head_dim must match"):
        hstu_attn_varlen_func(q, k[..., :4], v, offsets, offsets, LONGEST, LONGEST)
    with pytest.raises(ValueError, match="q_offsets ends with"):
        hstu_attn_varlen_func(q, k, v, offsets - offsets, offsets, LONGEST, LONGEST)
