"""Backward passes compute only the requested gradients of weights and biases."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import seqfuse  # noqa: F401 (loads the operators)
from cases import NAMES, make_cases

# Operators with optional gradients: positions of these arguments, and of their gradients in backward's results.
OPTIONAL = {
    "layer_norm": ({1: 1, 2: 2}, "layer_norm_backward"),
    "layer_norm_gate": ({2: 2, 3: 3}, "layer_norm_gate_backward"),
    "hstu_attention": ({13: 3, 14: 4}, "hstu_attention_backward"),
}


class Results(TorchDispatchMode):
    """Captures the results of an operator that runs inside."""

    def __init__(self, name):
        super().__init__()
        self.packet, self.results = getattr(torch.ops.seqfuse, name), None

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        results = func(*args, **(kwargs or {}))
        if func.overloadpacket is self.packet:
            self.results = results
        return results


def gradients(name, arguments, wanted):
    """All results of the backward operator, and those for the arguments at the wanted positions."""
    out = getattr(torch.ops.seqfuse, name)(*arguments)
    with Results(OPTIONAL[name][1]) as backward:
        asked = torch.autograd.grad(out.sum(), [arguments[place] for place in wanted])
    return backward.results, asked


CASES = [(i, name) for i, name in enumerate(NAMES) if name in OPTIONAL]


@pytest.mark.parametrize(("index", "name"), CASES, ids=[f"{i}-{name}" for i, name in CASES])
def test_others_are_not_computed(index, name, device):
    arguments = make_cases(device)[index][1]
    places = {p: r for p, r in OPTIONAL[name][0].items() if arguments[p] is not None}
    everything, asked = gradients(name, arguments, [0, *places])
    assert all(everything[result] is not None for result in places.values())
    exact = dict(zip([0, *places], asked))
    for place in (0, *places):
        results, (gradient,) = gradients(name, arguments, [place])
        torch.testing.assert_close(gradient, exact[place])
        for other, result in places.items():
            assert (results[result] is None) == (other != place)


def test_frozen_weights_have_no_gradient(device):
    layer = seqfuse.HSTULayer.research(12, 2, 4, max_seqlen=9, device=device)
    offsets = torch.tensor([0, 4, 9], device=device)
    x = torch.randn(9, 12, device=device)
    times = torch.randint(10**6, (9,), device=device)

    def run():
        layer.zero_grad()
        layer(x, offsets, timestamps=times, max_seqlen=9).square().sum().backward()
        return {name: weight.grad for name, weight in layer.named_parameters()}

    everything = run()
    for name, weight in layer.named_parameters():
        weight.requires_grad_(False)
        for other, gradient in run().items():
            if other == name:
                assert gradient is None
            else:
                torch.testing.assert_close(gradient, everything[other])
        weight.requires_grad_(True)
