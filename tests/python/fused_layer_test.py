"""The fused HSTU layer: its shapes on any machine, everything else on a GPU in 16 bits."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

import seqfuse
from cases import HALF_TYPES, deterministic, needs_gpu
from reference import expect_oracle_rule

LENGTHS = [0, 1, 70, 130, 7, 0]
TOTAL, LONGEST = sum(LENGTHS), max(LENGTHS)
RECOMPUTED = [
    {"recompute_input_layernorm": True},
    {"recompute_input_silu": True},
    {"recompute_input_layernorm": True, "recompute_input_silu": True},
]


def make_layer(research, device="cuda", width=64, heads=2, head_dim=32, **options):
    if research:
        return seqfuse.HSTULayer.research(width, heads, head_dim, max_seqlen=LONGEST, device=device, **options)
    return seqfuse.HSTULayer(width, heads, head_dim, scaling_seqlen=LONGEST, device=device, **options)


def make_batch(width, device="cuda"):
    """x and its gradient in float32, and the layer's other arguments."""
    offsets = seqfuse.lengths_to_offsets(torch.tensor(LENGTHS, device=device))
    counts = torch.tensor([min(3, n // 2) for n in LENGTHS], device=device)
    times = torch.randint(10**6, (TOTAL,), device=device).cumsum(0)
    x, dout = torch.randn(2, TOTAL, width, device=device)
    options = {"num_contexts": counts, "num_targets": counts, "timestamps": times, "max_seqlen": LONGEST}
    return x, dout, (offsets,), options


def on(device, values):
    return torch.utils._pytree.tree_map(lambda v: v.to(device) if isinstance(v, torch.Tensor) else v, values)


def results(layer, x, dout, offsets, options):
    """The result, and gradients of x and of the weights by name."""
    x = x.detach().clone().requires_grad_()
    layer.zero_grad()
    out = layer(x, *offsets, **options)
    out.backward(dout.to(out.dtype))
    gradients = {name: weight.grad for name, weight in layer.named_parameters() if weight.requires_grad}
    return {"out": out.detach(), "x": x.grad, **gradients}


def exact_results(layer, x, dout, offsets, options):
    """In float64 on the CPU, where the layer is composed of several operators."""
    exact = make_layer(layer.time_bias is not None, "cpu", dtype=torch.double, dropout=layer.dropout)
    exact.load_state_dict(layer.state_dict())
    return results(exact, x.cpu().double(), dout.cpu().double(), *on("cpu", (offsets, options)))


def composed_results(layer, x, dout, offsets, options):
    """The same layer composed of several operators, in x's dtype."""
    layer.residual = False
    alone = results(layer, x, dout, offsets, options)
    layer.residual = True
    return {**alone, "out": alone["out"] + x, "x": alone["x"] + dout.to(x.dtype)}


@needs_gpu
@pytest.mark.parametrize("dtype", HALF_TYPES)
@pytest.mark.parametrize("research", [False, True])
@pytest.mark.parametrize("dropout_seed", [None, 5])
def test_keeps_the_oracle_rule(research, dropout_seed, dtype):
    layer = make_layer(research, dropout=0.0 if dropout_seed is None else 0.3)
    x, dout, offsets, options = make_batch(64)
    x = x.to(dtype)
    options["dropout_seed"] = dropout_seed
    arguments = (x, dout, offsets, options)
    actual = results(layer, *arguments)
    expect_oracle_rule(actual, composed_results(layer, *arguments), exact_results(layer, *arguments), dtype)
    assert all(actual[name].dtype == torch.float32 for name in ("uvqk_weight", "output_weight"))


@needs_gpu
@pytest.mark.parametrize("dtype", HALF_TYPES)
def test_it_is_what_runs(dtype):
    x, _, offsets, options = make_batch(64)
    for dropout in (0.0, 0.3):
        out = make_layer(False, dropout=dropout)(x.to(dtype), *offsets, **options)
        assert out.grad_fn.name().endswith("HstuLayer>")
    composed = make_layer(False)(x, *offsets, **options)
    assert not composed.grad_fn.name().endswith("HstuLayer>")


def with_recomputation(layer, research, recomputed):
    """The same layer with these options."""
    other = make_layer(research, dropout=layer.dropout, **recomputed)
    other.load_state_dict(layer.state_dict())
    return other


@needs_gpu
@pytest.mark.parametrize("dtype", HALF_TYPES)
@pytest.mark.parametrize("research", [False, True])
@pytest.mark.parametrize("recomputed", RECOMPUTED)
def test_recomputing_keeps_results(recomputed, research, dtype):
    layer = make_layer(research, dropout=0.3)
    other = with_recomputation(layer, research, recomputed)
    x, dout, offsets, options = make_batch(64)
    arguments = (x.to(dtype), dout, offsets, {**options, "dropout_seed": 5})
    # Without atomics, so that equal operations produce equal bits.
    with deterministic():
        kept, actual = results(layer, *arguments), results(other, *arguments)
    assert torch.equal(actual["out"], kept["out"])
    if "recompute_input_silu" not in recomputed:  # SiLU of the backward pass is PyTorch's, which rounds otherwise
        torch.testing.assert_close(actual, kept, rtol=0, atol=0)
    expect_oracle_rule(actual, composed_results(layer, *arguments), exact_results(layer, *arguments), dtype)


def bytes_kept(layer, x, offsets, options):
    """GPU memory of the result and of the tensors saved for the backward pass."""
    layer(x, *offsets, **options)  # what is allocated once and for all
    before = torch.cuda.memory_allocated()
    out = layer(x, *offsets, **options)
    assert out.requires_grad
    return torch.cuda.memory_allocated() - before


@needs_gpu
@pytest.mark.parametrize("dtype", HALF_TYPES)
@pytest.mark.parametrize("recomputed", RECOMPUTED)
def test_recomputing_keeps_fewer_bytes(recomputed, dtype):
    width, inner = 64, 64
    layer = make_layer(False, width=width, heads=2, head_dim=32)
    x, _, offsets, options = make_batch(width)
    arguments = (x.to(dtype), offsets, options)
    saved = 2 * width * ("recompute_input_layernorm" in recomputed) + 8 * inner * ("recompute_input_silu" in recomputed)
    # The matrices' sizes are multiples of 512 bytes, to which the allocator rounds.
    less = bytes_kept(layer, *arguments) - bytes_kept(with_recomputation(layer, False, recomputed), *arguments)
    assert less == saved * TOTAL


@needs_gpu
@pytest.mark.parametrize("dtype", HALF_TYPES)
@pytest.mark.parametrize("research", [False, True])
@pytest.mark.parametrize("recomputed", [{}, RECOMPUTED[-1]])
def test_compiles_and_changes_lengths(recomputed, research, dtype):
    layer = make_layer(research, dropout=0.2, **recomputed)
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    for seed, lengths in enumerate(([3, 0, 5], [2, 2, 2, 7], [1], [100, 30])):
        x = torch.randn(sum(lengths), 64, device="cuda", dtype=dtype)
        offsets = (seqfuse.lengths_to_offsets(torch.tensor(lengths, device="cuda")),)
        times = torch.randint(10**6, (sum(lengths),), device="cuda")
        options = {"timestamps": times, "max_seqlen": max(lengths), "dropout_seed": seed}
        arguments = (x, torch.randn_like(x), offsets, options)
        with torch.no_grad():
            torch.testing.assert_close(compiled(x, *offsets, **options), layer(x, *offsets, **options))
        # dq is summed by atomics, in any order.
        for (name, ours), (_, plain) in zip(results(compiled, *arguments).items(), results(layer, *arguments).items()):
            tolerance = 8 * torch.finfo(dtype).eps
            torch.testing.assert_close(ours, plain, rtol=tolerance, atol=tolerance * plain.abs().max().item(), msg=name)


@needs_gpu
@pytest.mark.slow
def test_compiles_by_inductor():
    layer = make_layer(False)
    x, dout, offsets, options = make_batch(64)
    compiled = torch.compile(layer, fullgraph=True)
    arguments = (x.bfloat16(), dout, offsets, options)
    for name, ours in results(compiled, *arguments).items():
        plain = results(layer, *arguments)[name]
        torch.testing.assert_close(ours, plain, rtol=0.05, atol=0.05 * plain.abs().max().item(), msg=name)


def operator_arguments(research, device, dtype, *, recompute=False):
    """Arguments of torch.ops.seqfuse.hstu_layer; offsets have no values."""
    layer = make_layer(research, device)
    offsets = torch.empty(len(LENGTHS) + 1, device=device, dtype=torch.long)
    x = torch.randn(TOTAL, 64, device=device, dtype=dtype, requires_grad=True)
    times = torch.zeros(TOTAL, device=device, dtype=torch.long) if research else None
    return (
        *(x, layer.input_norm_weight, layer.input_norm_bias, layer.uvqk_weight, layer.uvqk_bias),
        *(layer.output_norm_weight, layer.output_norm_bias, layer.output_weight, layer.output_bias, offsets),
        *(2, 1e-5, 0.2, 7, recompute, recompute, layer.alpha, LONGEST, True, 1, 0, 0),
        *(None, None, layer.position_bias, layer.time_bias, times, None, LONGEST),
    )


@pytest.mark.skipif(not hasattr(torch.ops.seqfuse, "hstu_layer_forward"), reason="this build has no CUDA kernels")
@pytest.mark.parametrize("dtype", HALF_TYPES)
@pytest.mark.parametrize("research", [False, True])
@pytest.mark.parametrize("recompute", [False, True])
def test_shapes(research, recompute, dtype):
    forward, backward = (getattr(torch.ops.seqfuse, f"hstu_layer_{name}") for name in ("forward", "backward"))
    with FakeTensorMode():
        arguments = operator_arguments(research, "cuda", dtype, recompute=recompute)
        out = torch.ops.seqfuse.hstu_layer(*arguments)
        assert out.grad_fn.name().endswith("HstuLayer>")
        differentiable = [*arguments[:9], arguments[24], arguments[25]]
        in_dtype = [w if w is None else w.to(dtype) for w in arguments[:9]]
        with torch.no_grad():
            result, *kept = forward(*in_dtype, *arguments[9:])
        for missing in range(12):
            wanted = [w is not None and place != missing for place, w in enumerate(differentiable)]
            gradients = backward(result, wanted, *kept, *in_dtype, *arguments[9:])
            assert [g is not None for g in gradients] == wanted
            assert all(g is None or g.shape == w.shape for g, w in zip(gradients, differentiable))
    for tensor in (out, result):
        assert (tensor.shape, tensor.dtype, tensor.device.type) == ((TOTAL, 64), dtype, "cuda")
    assert [kept[2] is None, kept[4] is None] == [recompute, recompute]


@pytest.mark.skipif(not hasattr(torch.ops.seqfuse, "hstu_layer_forward"), reason="this build has no CUDA kernels")
@pytest.mark.parametrize("research", [False, True])
@pytest.mark.parametrize("requires_grad", [False, True])
def test_symbolic_shapes(research, requires_grad):
    mode = FakeTensorMode(shape_env=ShapeEnv())

    def symbolic(value):
        if not isinstance(value, torch.Tensor):
            return value
        context = StatelessSymbolicContext(dynamic_sizes=[DimDynamic.DYNAMIC] * value.dim())
        shape = mode.from_tensor(torch.empty(value.shape), symbolic_context=context).shape
        floats = requires_grad and value.is_floating_point()
        with mode:
            return torch.empty(shape, device="cuda", dtype=value.dtype, requires_grad=floats)

    with FakeTensorMode():
        arguments = operator_arguments(research, "cuda", torch.bfloat16)
    arguments = [symbolic(a) for a in arguments]
    with mode:
        out = torch.ops.seqfuse.hstu_layer(*arguments)
    assert all(isinstance(size, torch.SymInt) for size in out.shape)
    assert (out.dim(), out.dtype, out.requires_grad) == (2, torch.bfloat16, requires_grad)


@needs_gpu
@pytest.mark.parametrize("dtype", HALF_TYPES)
@pytest.mark.parametrize("research", [False, True])
@pytest.mark.parametrize("recompute", [False, True])
def test_opcheck(research, recompute, dtype):
    arguments = list(operator_arguments(research, "cuda", dtype, recompute=recompute))
    arguments[9].copy_(seqfuse.lengths_to_offsets(torch.tensor(LENGTHS)))
    # Without atomics, since gradients of eager mode and AOT are compared.
    with deterministic():
        torch.library.opcheck(torch.ops.seqfuse.hstu_layer.default, arguments)


@needs_gpu
@pytest.mark.parametrize("dtype", HALF_TYPES)
@pytest.mark.parametrize("research", [False, True])
def test_frozen_weights_have_no_gradient(research, dtype):
    layer = make_layer(research)
    x, dout, offsets, options = make_batch(64)
    arguments = (x.to(dtype), dout, offsets, options)
    with deterministic():
        everything = results(layer, *arguments)
        for weight in layer.parameters():
            weight.requires_grad_(False)
            for other, gradient in results(layer, *arguments).items():
                torch.testing.assert_close(gradient, everything[other], rtol=0, atol=0)
            assert weight.grad is None
            weight.requires_grad_(True)
        for weight in layer.parameters():
            weight.requires_grad_(False)
        torch.testing.assert_close(results(layer, *arguments)["x"], everything["x"], rtol=0, atol=0)
