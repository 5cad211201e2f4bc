"""torch.compile without graph breaks: the same results and gradients, even when sizes change."""

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend

import seqfuse
from cases import HALF_TYPES, NAMES, deterministic, make_case, make_cases, needs_gpu


def copies(arguments):
    """Arguments as new leaves."""

    def copy(value):
        if not isinstance(value, torch.Tensor):
            return value
        return value.detach().clone().requires_grad_(value.requires_grad)

    return torch.utils._pytree.tree_map(copy, arguments)


def run(function, arguments):
    """Results, and gradients of the sum of their squares."""
    results = function(*arguments)
    floating = [r for r in torch.utils._pytree.tree_leaves(results) if r.is_floating_point() and r.requires_grad]
    if floating:
        sum(r.square().sum() for r in floating).backward()
    leaves = [leaf for leaf in torch.utils._pytree.tree_leaves(arguments) if isinstance(leaf, torch.Tensor)]
    return results, [leaf.grad for leaf in leaves]


@pytest.mark.parametrize("index", range(len(NAMES)), ids=[f"{i}-{name}" for i, name in enumerate(NAMES)])
def test_functions(index, device):
    name, arguments = make_case(index, device)
    # hstu_attention takes options by name, masked_attention a BlockMask, spmm, sddmm and gat_attention a Graph, and
    # hstu_layer is seqfuse.HSTULayer.
    by_name = name.startswith(("hstu", "masked", "spmm", "sddmm", "gat"))
    function = getattr(torch.ops.seqfuse if by_name else seqfuse, name)
    compiled = torch.compile(function, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(run(compiled, copies(arguments)), run(function, copies(arguments)))


@needs_gpu
@pytest.mark.parametrize("dtype", HALF_TYPES)
@pytest.mark.parametrize("index", [i for i, name in enumerate(NAMES) if name == "hstu_attention"])
def test_attention_in_16_bits(index, dtype):
    arguments = make_cases("cuda", dtype)[index][1]
    compiled = torch.compile(torch.ops.seqfuse.hstu_attention, backend="aot_eager", fullgraph=True)
    # The same kernels run, without atomics, so results are the same bits.
    with deterministic():
        ours, plain = (run(f, copies(arguments)) for f in (compiled, torch.ops.seqfuse.hstu_attention))
    assert ours[0].dtype == dtype
    torch.testing.assert_close(ours, plain, rtol=0, atol=0)


def batch(lengths, device, dtype):
    offsets = seqfuse.lengths_to_offsets(torch.tensor(lengths, device=device))
    x = torch.randn(sum(lengths), 12, device=device, dtype=dtype).requires_grad_()
    return x, offsets, max(lengths)


@pytest.mark.parametrize("research", [False, True])
def test_layer(research, device):
    dtype = torch.double if device == "cpu" else torch.float
    if research:
        layer = seqfuse.HSTULayer.research(12, 2, 4, max_seqlen=16, device=device, dtype=dtype)
    else:
        layer = seqfuse.HSTULayer(12, 2, 4, scaling_seqlen=16, device=device, dtype=dtype)
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    for lengths in ([3, 0, 5], [2, 2, 2, 7], [1], [16, 9]):
        x, offsets, longest = batch(lengths, device, dtype)
        times = torch.randint(10**6, (x.shape[0],), device=device)

        def call(function, x, offsets=offsets, longest=longest, times=times):
            layer.zero_grad()
            out = function(x, offsets, timestamps=times, max_seqlen=longest)
            out.square().sum().backward()
            return out, x.grad, [p.grad.clone() for p in layer.parameters()]

        torch.testing.assert_close(call(compiled, *copies((x,))), call(layer, *copies((x,))))


def layer_call(layer, **options):
    """The layer, and a function that calls its compiled form."""

    def call(compiled, lengths):
        x, offsets, longest = batch(lengths, "cpu", torch.float)
        return compiled(x, offsets, timestamps=torch.arange(len(x)), max_seqlen=longest, **options)

    return layer, call


def attention_call(function):
    """function(q, k, v, offsets, longest) and its compiled form."""

    def call(compiled, lengths):
        _, offsets, longest = batch(lengths, "cpu", torch.float)
        return compiled(*torch.randn(3, sum(lengths), 2, 4).requires_grad_(), offsets, longest)

    return function, call


def attention(q, k, v, offsets, longest):
    return seqfuse.hstu_attention(q, k, v, offsets, alpha=0.5, scaling_seqlen=8, max_seqlen=longest)


def varlen(q, k, v, offsets, longest):
    older = seqfuse.hstu_attn_varlen_func(q, k, v, offsets, offsets, longest, longest)
    newer = seqfuse.hstu_attn_varlen_func(q, k, v, offsets, offsets, None, None, longest, longest, longest)
    return older + newer


def jagged(q, k, _, offsets, longest):
    tokens = q.shape[0]
    dense = seqfuse.jagged_to_dense(q.flatten(1), offsets, longest)
    back = seqfuse.dense_to_jagged(dense, offsets, tokens)
    joined = seqfuse.jagged_concat([back, k.flatten(1)], [offsets, offsets])
    return seqfuse.jagged_split(joined, [offsets, offsets], [tokens, tokens])[0]


CALLS = {
    "layer": lambda: layer_call(seqfuse.HSTULayer(12, 2, 4, scaling_seqlen=16, dropout=0.2), dropout_seed=5),
    "research": lambda: layer_call(seqfuse.HSTULayer.research(12, 2, 4, max_seqlen=100)),
    "attention": lambda: attention_call(attention),
    "varlen": lambda: attention_call(varlen),
    "jagged": lambda: attention_call(jagged),
}


@pytest.mark.parametrize("name", CALLS)
def test_further_lengths_compile_nothing(name):
    """Compiles once for the first lengths, and once with symbolic sizes for all others."""
    function, call = CALLS[name]()
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(function, backend=counter, fullgraph=True)
    compilations = []
    for lengths in ([3, 0, 5], [2, 2, 2, 7], [16, 9], [4] * 7, [100, 30], [3, 0, 5]):
        call(compiled, lengths).sum().backward()
        compilations.append(counter.frame_count)
    assert compilations == [1, 2, 2, 2, 2, 2]


def test_dropout_follows_torchs_generator_or_a_seed(device):
    layer = seqfuse.HSTULayer(12, 2, 4, scaling_seqlen=16, dropout=0.5, device=device)
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    x, offsets, longest = batch([4, 5], device, torch.float)

    def call(function, **options):
        torch.manual_seed(3)
        return function(x, offsets, max_seqlen=longest, **options)

    for function in (layer, compiled):
        torch.testing.assert_close(call(function), call(function))
        assert not torch.equal(function(x, offsets, max_seqlen=longest), function(x, offsets, max_seqlen=longest))
    for seed in (5, 6, 7):
        torch.testing.assert_close(call(compiled, dropout_seed=seed), call(layer, dropout_seed=seed))
    assert not torch.equal(call(layer, dropout_seed=5), call(layer, dropout_seed=6))
    layer.eval()
    torch.testing.assert_close(call(layer, dropout_seed=5), call(layer))


@pytest.mark.slow
def test_layer_by_inductor(device):
    layer = seqfuse.HSTULayer(12, 2, 4, scaling_seqlen=16, device=device)
    compiled = torch.compile(layer, fullgraph=True)
    x, offsets, longest = batch([3, 0, 5], device, torch.float)
    torch.testing.assert_close(compiled(x, offsets, max_seqlen=longest), layer(x, offsets, max_seqlen=longest))


@pytest.mark.slow
def test_attention_by_inductor(device):
    dtype = torch.bfloat16 if device == "cuda" else torch.float
    q, k, v = torch.randn(3, 21, 2, 32, device=device, dtype=dtype).requires_grad_()
    offsets = torch.tensor([0, 4, 4, 21], device=device)

    def call(q, k, v):
        return seqfuse.hstu_attn_varlen_func(q.sin(), k, v * 2, offsets, offsets, 17, 17, window_size=(-1, 0)).cos()

    compiled = torch.compile(call, fullgraph=True)
    tolerance = 0.05 if device == "cuda" else 1e-4  # of what is around the operator, bfloat16 is rounded less often
    torch.testing.assert_close(
        run(compiled, copies((q, k, v))), run(call, copies((q, k, v))), rtol=tolerance, atol=tolerance
    )


def test_what_cannot_be_traced_says_so():
    offsets = torch.tensor([0, 1, 3])
    compiled = torch.compile(seqfuse.jagged_repeat, backend="aot_eager", fullgraph=True)
    with pytest.raises(Exception, match="pass it as total"):
        compiled(torch.randn(2, 3), offsets)
    table = torch.randn(4, 3, requires_grad=True)
    lookup = torch.compile(seqfuse.embedding_lookup, backend="aot_eager", fullgraph=True)
    with pytest.raises(Exception, match="pass sparse=False"):
        lookup(table, offsets, True)
