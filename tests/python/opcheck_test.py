"""torch.library.opcheck on every operator: schema, autograd registration, FakeTensor, AOT with dynamic shapes."""

import pytest
import torch

import seqfuse  # noqa: F401 (loads the operators)
from cases import HALF_TYPES, NAMES, deterministic, make_case, make_cases, needs_gpu

# Internal operators trust their callers' checks, so only the callers are tested.
INTERNAL = ("_forward", "_backward")
# Run when a mask or a graph is made, and are not traced: the sizes of their results depend on values.
NOT_TRACED = {"build_block_mask", "build_graph"}


@pytest.mark.parametrize("index", range(len(NAMES)), ids=[f"{i}-{name}" for i, name in enumerate(NAMES)])
def test_opcheck(index, device):
    name, arguments = make_case(index, device)
    torch.library.opcheck(getattr(torch.ops.seqfuse, name).default, arguments)


@needs_gpu
@pytest.mark.parametrize("dtype", HALF_TYPES)
@pytest.mark.parametrize("float32_biases", [False, True])
@pytest.mark.parametrize("index", [i for i, name in enumerate(NAMES) if name == "hstu_attention"])
def test_attention_in_16_bits(index, float32_biases, dtype):
    arguments = list(make_cases("cuda", dtype)[index][1])
    schema = [argument.name for argument in torch.ops.seqfuse.hstu_attention.default._schema.arguments]
    for place in (schema.index("position_bias"), schema.index("time_bias")):
        if float32_biases and arguments[place] is not None:
            arguments[place] = arguments[place].detach().float().requires_grad_()
    # Without atomics, since gradients of eager mode and AOT are compared.
    with deterministic():
        torch.library.opcheck(torch.ops.seqfuse.hstu_attention.default, arguments)


def test_every_operator_has_a_case():
    schemas = torch._C._jit_get_all_schemas()
    names = {s.name.removeprefix("seqfuse::") for s in schemas if s.name.startswith("seqfuse::")}
    assert {name for name in names if not name.endswith(INTERNAL)} - NOT_TRACED == set(NAMES)


@pytest.mark.parametrize("index", range(len(NAMES)), ids=[f"{i}-{name}" for i, name in enumerate(NAMES)])
def test_gradients_match_differences(index):
    name, arguments = make_cases("cpu")[index]
    leaves, structure = torch.utils._pytree.tree_flatten(arguments)
    if not any(isinstance(leaf, torch.Tensor) and leaf.requires_grad for leaf in leaves):
        pytest.skip("not differentiable")

    def run(*values):
        return getattr(torch.ops.seqfuse, name)(*torch.utils._pytree.tree_unflatten(values, structure))

    assert torch.autograd.gradcheck(run, leaves)


def test_second_derivatives_are_refused():
    x = torch.randn(3, 4, dtype=torch.double, requires_grad=True)
    (gradient,) = torch.autograd.grad(seqfuse.layer_norm(x).square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="layer_norm_backward"):
        gradient.sum().backward()
