"""Hidden states of seqfuse.GPTNeoX: on a GPU in 16 bits those of the framework, bit by bit, on every layer."""

import json

import pytest
import torch

import plain_gpt_neox
import seqfuse
import tiny_gpt_neox
from cases import HALF_TYPES, needs_gpu

pytestmark = pytest.mark.skipif(
    not seqfuse.library_path.with_name("libseqfuse_decoder.so").is_file(),
    reason="built without language models (nlohmann/json.hpp)",
)
# head_dim 80 with 20 rotary dimensions, as Pythia-2.8B has.
SIZES = {"hidden_size": 320, "num_hidden_layers": 6, "num_attention_heads": 4, "intermediate_size": 1280}
TOKENS = 200
both_residuals = pytest.mark.parametrize("parallel", [True, False], ids=["parallel", "sequential"])


def make_folder(tmp_path, monkeypatch, parallel, dtype):
    monkeypatch.setattr(tiny_gpt_neox, "SIZES", SIZES)
    folder = tiny_gpt_neox.write_model(tmp_path / "model", parallel)
    # Weights that keep hidden states in float16's range over the layers, rounded to dtype.
    weights = {
        name: (0.1 * tensor if tensor.dim() == 2 and "layers" in name else tensor).to(dtype).float()
        for name, tensor in tiny_gpt_neox.make_tensors().items()
    }
    tiny_gpt_neox.write_safetensors(folder / "model.safetensors", weights)
    return folder, weights, json.loads((folder / "config.json").read_text())


def some_ids():
    return torch.randint(tiny_gpt_neox.VOCABULARY, (TOKENS,)).tolist()


def differing(found, expected):
    """(hidden state, elements that differ, largest difference) where they do."""
    assert len(found) == len(expected) == SIZES["num_hidden_layers"] + 1
    pairs = enumerate(zip(found, expected))
    return [(i, int((f != e).sum()), float((f - e).abs().max())) for i, (f, e) in pairs if not torch.equal(f, e)]


@both_residuals
@pytest.mark.parametrize(
    ("place", "dtype"),
    [("cpu", torch.float64), *(pytest.param("cuda", dtype, marks=needs_gpu) for dtype in HALF_TYPES)],
)
def test_hidden_states_in_the_framework_s_order(tmp_path, monkeypatch, parallel, place, dtype):
    folder, weights, config = make_folder(tmp_path, monkeypatch, parallel, dtype)
    model = seqfuse.GPTNeoX.from_pretrained(folder, dtype=dtype, device=place)
    ids = some_ids()
    found = model.hidden_states(ids)
    assert all(state.shape == (TOKENS, SIZES["hidden_size"]) and state.isfinite().all() for state in found)
    weights = {name: tensor.to(place, dtype) for name, tensor in weights.items()}
    expected = plain_gpt_neox.hidden_states(config, weights, ids)
    if dtype == torch.float64:
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    else:
        assert differing(found, expected) == []


@needs_gpu
@both_residuals
@pytest.mark.parametrize("dtype", HALF_TYPES)
def test_hidden_states_are_those_of_transformers(tmp_path, monkeypatch, parallel, dtype):
    transformers = pytest.importorskip(
        "transformers", reason="transformers is not installed (`make setup` installs it)"
    )
    folder, _, _ = make_folder(tmp_path, monkeypatch, parallel, dtype)
    theirs = transformers.GPTNeoXForCausalLM.from_pretrained(folder, dtype=dtype).cuda().eval()
    ids = some_ids()
    with torch.no_grad():
        expected = theirs(torch.tensor([ids], device="cuda"), output_hidden_states=True).hidden_states
    model = seqfuse.GPTNeoX.from_pretrained(folder, dtype=dtype, device="cuda")
    assert differing(model.hidden_states(ids), [state[0] for state in expected]) == []


def test_arguments(tmp_path, monkeypatch):
    folder, _, _ = make_folder(tmp_path, monkeypatch, True, torch.float32)
    model = seqfuse.GPTNeoX.from_pretrained(folder, dtype="float32", device="cpu")
    with pytest.raises(ValueError, match="hidden states of no tokens"):
        model.hidden_states([])
    with pytest.raises(ValueError, match="the id 300 is not in the model's vocabulary of 300"):
        model.hidden_states([3, 300])
