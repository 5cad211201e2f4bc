"""Wrong arguments raise ValueError or IndexError, and say what was given and what was expected."""

import subprocess
import sys

import pytest
import torch

import seqfuse
from cases import needs_gpu

X = torch.randn(4, 3)
Q = torch.randn(4, 2, 8)
OFFSETS = torch.tensor([0, 1, 4])


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: seqfuse.layer_norm(X, torch.ones(5)), ValueError, r"layer_norm: weight is \[5\]; expected \[3\]"),
        (
            lambda: seqfuse.layer_norm(X.half()),
            ValueError,
            "layer_norm: x is Half; expected Float or Double on the CPU",
        ),
        (lambda: seqfuse.layer_norm_gate(X, X[:2]), ValueError, r"u is \[2, 3\]; expected \[4, 3\]"),
        (lambda: seqfuse.layer_norm(X, eps=-1.0), ValueError, "layer_norm: eps is -1; expected 0 or more"),
        (
            lambda: seqfuse.hstu_attention(Q, Q, Q, OFFSETS, alpha=1.0, scaling_seqlen=3, max_seqlen=2),
            ValueError,
            "max_seqlen is 2 but sequence 1 has 3 keys",
        ),
        (
            lambda: seqfuse.HSTULayer(5, 1, 4, scaling_seqlen=3)(X, OFFSETS),
            ValueError,
            r"hstu_layer: x is \[4, 3\]; expected \[T, 5\]",
        ),
        (lambda: seqfuse.dropout(X, 1.0, 0), ValueError, "the dropout probability is 1; expected 0 <= p < 1"),
        (lambda: seqfuse.l2_normalize(X, 0.0), ValueError, "eps is 0; expected a positive number"),
        (lambda: seqfuse.jagged_to_dense(X, OFFSETS[:2], 3), ValueError, "offsets ends with 1 but values has 4 rows"),
        (lambda: seqfuse.jagged_concat([X], []), ValueError, "1 parts and 0 offsets"),
        (lambda: seqfuse.jagged_split(X, [OFFSETS, OFFSETS]), ValueError, "end with 8 rows in all but values has 4"),
        (lambda: seqfuse.jagged_repeat(X[:2], OFFSETS, 9), ValueError, "total is 9 but offsets ends with 4"),
        (lambda: seqfuse.lengths_to_offsets(-OFFSETS), ValueError, "lengths contains -4"),
        (lambda: seqfuse.interleave(X, X[:2]), ValueError, r"interleave: b is \[2, 3\]; expected \[4, 3\]"),
        (lambda: seqfuse.embedding_lookup(X, OFFSETS), IndexError, r"ids\[2\] is 4; expected an id of at least 0"),
        (
            lambda: seqfuse.sampled_softmax_loss(X, X, OFFSETS, OFFSETS),
            ValueError,
            r"targets is \[3\]; expected \[4\]",
        ),
        (lambda: seqfuse.position_encoding(X, X[:, :2], OFFSETS), ValueError, r"table is \[4, 2\]; expected \[4, 3\]"),
    ],
)
def test_message(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_other_devices_are_refused():
    with pytest.raises((ValueError, NotImplementedError), match="layer_norm"):
        seqfuse.layer_norm(X.to_sparse())


@pytest.mark.parametrize(
    "call",
    [
        lambda: seqfuse.layer_norm(X, torch.ones(3, device="meta")),
        lambda: seqfuse.hstu_attention(Q, Q, Q, OFFSETS.to("meta"), alpha=1.0, scaling_seqlen=3),
        lambda: seqfuse.HSTULayer(3, 1, 4, scaling_seqlen=3, device="meta")(X, OFFSETS),
        lambda: seqfuse.jagged_to_dense(X, OFFSETS.to("meta"), 3),
    ],
)
def test_meta_beside_another_device(call):
    with pytest.raises(ValueError, match="on meta"):
        call()


@needs_gpu
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"k": lambda q: q[..., :4]}, r"k is \[4, 2, 4\] but q is \[4, 2, 8\]; head_dim must match"),
        ({"k": lambda q: q.float()}, "k is Float on cuda:0; expected Half on cuda:0"),
        ({"v": lambda q: q.cpu()}, "v is Half on cpu; expected Half on cuda:0"),
        ({"q_offsets": lambda q: OFFSETS}, "q_offsets is on cpu; expected cuda:0"),
        ({"max_seqlen": lambda q: 0}, "max_seqlen is 0; on a GPU it must be given"),
    ],
)
def test_attention_on_cuda(change, message):
    q = torch.randn(4, 2, 8, device="cuda", dtype=torch.half)
    offsets = OFFSETS.cuda()
    arguments = {"q": q, "k": q, "v": q, "q_offsets": offsets, "k_offsets": offsets, "max_seqlen": 3}
    arguments |= {"alpha": 1.0, "scaling_seqlen": 3}
    arguments |= {name: make(q) for name, make in change.items()}
    with pytest.raises(ValueError, match="hstu_attention: " + message):
        seqfuse.hstu_attention(**arguments)


WRONG_OFFSETS = """
import torch, seqfuse
layer = seqfuse.HSTULayer(32, 2, 16, scaling_seqlen=8).cuda().half()
x, offsets = torch.randn(4, 32, device="cuda", dtype=torch.half), torch.tensor([0, 1, 9], device="cuda")
print(layer(x, offsets, max_seqlen=8).sum().item())
"""


@needs_gpu
def test_wrong_offsets_on_cuda_fail_an_assertion():
    """Runs in its own process, which cannot use the GPU afterwards."""
    run = subprocess.run([sys.executable, "-c", WRONG_OFFSETS], check=False, capture_output=True, text=True)
    assert run.returncode != 0
    assert "Assertion `expected q_offsets and k_offsets that start with 0" in run.stderr
    assert "device-side assert triggered" in run.stderr
