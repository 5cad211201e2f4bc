"""torch.compile without graph breaks: the same results and gradients, also when sizes change."""

import pytest
import torch

import seqfuse
from cases import NAMES, make_cases


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
    name, arguments = make_cases(device)[index]
    # seqfuse.hstu_attention takes options by name, and hstu_layer is seqfuse.HSTULayer.
    function = getattr(torch.ops.seqfuse if name.startswith("hstu") else seqfuse, name)
    compiled = torch.compile(function, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(run(compiled, copies(arguments)), run(function, copies(arguments)))


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


def test_what_cannot_be_traced_says_so():
    offsets = torch.tensor([0, 1, 3])
    compiled = torch.compile(seqfuse.jagged_repeat, backend="aot_eager", fullgraph=True)
    with pytest.raises(Exception, match="pass it as total"):
        compiled(torch.randn(2, 3), offsets)
    table = torch.randn(4, 3, requires_grad=True)
    lookup = torch.compile(seqfuse.embedding_lookup, backend="aot_eager", fullgraph=True)
    with pytest.raises(Exception, match="pass sparse=False"):
        lookup(table, offsets, True)
