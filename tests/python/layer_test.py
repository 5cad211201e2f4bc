"""HSTULayer against golden vectors and plain PyTorch, and how the package is loaded."""

import json
import os
import pathlib
import subprocess
import sys

import pytest
import torch

import reference
import seqfuse
from cases import make_cases, needs_gpu

GOLDEN = pathlib.Path(__file__).parents[1] / "golden" / "hstu_layer.json"


def test_golden_vectors():
    golden = json.loads(GOLDEN.read_text())

    def doubles(values):
        return torch.tensor(values, dtype=torch.double)

    layer = seqfuse.HSTULayer(
        golden["hidden_size"],
        golden["num_heads"],
        golden["head_dim"],
        scaling_seqlen=golden["scaling_seqlen"],
        norm_epsilon=golden["norm_epsilon"],
        dtype=torch.double,
    )
    weights = {name: doubles(values) for name, values in golden["inputs"].items()}
    x = weights.pop("x").requires_grad_()
    layer.load_state_dict(weights)
    out = layer(
        x,
        torch.tensor([0, len(x)]),
        num_contexts=torch.tensor([golden["num_contexts"]]),
        num_targets=torch.tensor([golden["num_targets"]]),
    )
    out.backward(doubles(golden["grad_out"]))
    gradients = {"x": x.grad, **{name: weight.grad for name, weight in layer.named_parameters()}}
    torch.testing.assert_close(out, doubles(golden["out"]), rtol=0, atol=1e-12)
    assert gradients.keys() == golden["gradients"].keys()
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradient, doubles(golden["gradients"][name]), rtol=0, atol=1e-12)


def test_equals_plain_pytorch(device):
    layer = seqfuse.HSTULayer(12, 3, 4, scaling_seqlen=20, max_attn_len=3, device=device)
    offsets = torch.tensor([0, 6, 6, 15], device=device)
    x = torch.randn(15, 12, device=device)
    counts = torch.tensor([1, 0, 2], device=device)
    out = layer(x, offsets, num_contexts=counts, num_targets=counts, max_seqlen=9)
    plain = reference.layer(layer, x, offsets, contexts=[1, 0, 2], targets=[1, 0, 2], window=3)
    torch.testing.assert_close(out, plain, rtol=1e-4, atol=1e-5)


def test_gradients_match_differences():
    layer = seqfuse.HSTULayer.research(4, 2, 2, max_seqlen=5, num_time_buckets=6, dtype=torch.double)
    offsets, times = torch.tensor([0, 2, 2, 5]), torch.tensor([3, 40, 1, 500, 60000])
    x = torch.randn(5, 4, dtype=torch.double, requires_grad=True)
    names, weights = zip(*((n, torch.randn_like(w).requires_grad_()) for n, w in layer.named_parameters()))

    def run(x, *values):
        return torch.func.functional_call(layer, dict(zip(names, values)), (x, offsets), {"timestamps": times})

    assert torch.autograd.gradcheck(run, (x, *weights))


@pytest.mark.parametrize("layernorm", [False, True])
@pytest.mark.parametrize("silu", [False, True])
def test_recomputing_changes_nothing(layernorm, silu, device, monkeypatch):
    """It is passed to the operator, which uses it only in 16 bits on CUDA (fused_layer_test.py)."""
    options = {"recompute_input_layernorm": layernorm, "recompute_input_silu": silu}
    layer = seqfuse.HSTULayer(12, 3, 4, scaling_seqlen=20, dropout=0.3, device=device)
    other = seqfuse.HSTULayer(12, 3, 4, scaling_seqlen=20, dropout=0.3, device=device, **options)
    other.load_state_dict(layer.state_dict())
    x, offsets = torch.randn(15, 12, device=device), torch.tensor([0, 6, 6, 15], device=device)
    operator, calls = torch.ops.seqfuse.hstu_layer, []

    def recorded(*arguments, **keywords):
        calls.append({name: keywords[name] for name in options})
        return operator(*arguments, **keywords)

    monkeypatch.setattr(torch.ops.seqfuse, "hstu_layer", recorded)

    def run(layer):
        leaf = x.clone().requires_grad_()
        out = layer(leaf, offsets, max_seqlen=9, dropout_seed=3)
        out.sin().sum().backward()
        return out, leaf.grad, [weight.grad for weight in layer.parameters()]

    torch.testing.assert_close(run(other), run(layer))
    assert calls == [options, dict.fromkeys(options, False)]


@needs_gpu
def test_bfloat16_on_cuda_takes_float32_weights():
    layer = seqfuse.HSTULayer(64, 2, 32, scaling_seqlen=20, device="cuda")
    offsets = torch.tensor([0, 6, 15], device="cuda")
    x = torch.randn(15, 64, device="cuda")
    exact = layer(x, offsets, max_seqlen=9)
    out = layer(x.bfloat16(), offsets, max_seqlen=9)
    assert out.dtype == torch.bfloat16
    torch.testing.assert_close(out.float(), exact, rtol=0.05, atol=0.05)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        torch.testing.assert_close(layer(x, offsets, max_seqlen=9), exact, rtol=0.05, atol=0.05)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_shapes_of_meta_tensors(dtype):
    layer = seqfuse.HSTULayer(6, 2, 3, scaling_seqlen=9, dropout=0.5, device="meta")
    offsets = torch.empty(3, dtype=torch.long, device="meta")
    out = layer(torch.empty(7, 6, dtype=dtype, device="meta"), offsets, max_seqlen=5)
    assert out.shape == (7, 6) and out.dtype == dtype


def test_dropout_draws_on_the_cpu_whatever_the_default_device():
    layer = seqfuse.HSTULayer(6, 2, 3, scaling_seqlen=9, dropout=0.5)
    x, offsets = torch.randn(7, 6), torch.tensor([0, 2, 7])
    with torch.device("meta"):
        assert layer(x, offsets, max_seqlen=5).shape == (7, 6)


@pytest.mark.parametrize("research", [False, True])
@pytest.mark.parametrize("seed", [None, 3])
def test_without_residual(research, seed):
    """Without a residual the layer is composed of operators in Python; with one it is a single operator."""
    if research:
        layer = seqfuse.HSTULayer.research(6, 2, 3, max_seqlen=9, dropout=0.3 if seed else 0.0)
    else:
        layer = seqfuse.HSTULayer(6, 2, 3, scaling_seqlen=9, dropout=0.3 if seed else 0.0)
    x, offsets = torch.randn(7, 6), torch.tensor([0, 2, 7], dtype=torch.int32)

    def run(residual):
        layer.zero_grad()
        layer.residual = residual
        out = layer(x, offsets, timestamps=torch.arange(7) * 100, dropout_seed=seed)
        if not residual:
            out = x + out
        out.sin().sum().backward()
        return out, [weight.grad for weight in layer.parameters()]

    torch.testing.assert_close(run(True), run(False))


def test_the_operator_does_not_follow_autocast():
    arguments = [
        value.float() if isinstance(value, torch.Tensor) and value.is_floating_point() else value
        for value in dict(make_cases("cpu"))["hstu_layer"]
    ]
    expected = torch.ops.seqfuse.hstu_layer(*arguments)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(torch.ops.seqfuse.hstu_layer(*arguments), expected)


@pytest.mark.parametrize("residual", [False, True])
def test_autocast_changes_nothing_on_the_cpu(residual):
    layer = seqfuse.HSTULayer(6, 2, 3, scaling_seqlen=9, residual=residual)
    x, offsets = torch.randn(7, 6), torch.tensor([0, 2, 7])
    expected = layer(x, offsets)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(layer(x, offsets), expected)


@pytest.mark.parametrize("offsets", [[0], [0, 0, 0]])
def test_batches_without_tokens(offsets, device):
    layer = seqfuse.HSTULayer.research(16, 2, 8, max_seqlen=9, device=device)
    x = torch.randn(0, 16, device=device, requires_grad=True)
    times = torch.arange(0, device=device)
    out = layer(x, torch.tensor(offsets, device=device), timestamps=times, max_seqlen=9)
    out.sum().backward()
    assert out.shape == x.grad.shape == (0, 16)
    assert all(weight.grad is None or not weight.grad.any() for weight in layer.parameters())


def test_a_missing_library_is_explained():
    environment = {**os.environ, "SEQFUSE_LIBRARY": "nowhere/libseqfuse_ops.so"}
    imported = subprocess.run(
        [sys.executable, "-c", "import seqfuse"], env=environment, capture_output=True, text=True, check=False
    )
    assert imported.returncode == 1
    assert "seqfuse: there is no nowhere/libseqfuse_ops.so. Install the package" in imported.stderr
