"""seqfuse.Encoder against plain PyTorch in float64, and against transformers where that is installed."""

import json

import pytest
import torch
from torch.nn import functional as F

import seqfuse
from cases import HALF_TYPES, needs_gpu
from seqfuse import _library
from tiny_bert import POSITIONS, SIZES, VOCABULARY, make_tensors, write_bert

try:
    _library.load_decoder(_library.load())
except ImportError:
    pytest.skip("built without Encoder (nlohmann/json.hpp)", allow_module_level=True)

LENGTHS = [7, 70, 1, 33]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_bert(tmp_path_factory.mktemp("bert"))


@pytest.fixture(scope="module")
def encoder(folder):
    return seqfuse.Encoder.from_pretrained(folder, dtype=torch.float64, device="cpu")


def make_inputs(lengths=LENGTHS, left=False):
    columns = max(lengths)
    ids = torch.randint(VOCABULARY, (len(lengths), columns))
    types = torch.randint(2, ids.shape)
    mask = (torch.arange(columns) < torch.tensor(lengths)[:, None]).long()
    return ids, mask.flip(1) if left else mask, types


def reference(ids, mask, types, allowed=None):
    """The last hidden states in float64; allowed: bool [N, N], beside the padding."""
    w = {name: tensor.double() for name, tensor in make_tensors().items()}
    heads, hidden = SIZES["num_attention_heads"], SIZES["hidden_size"]

    def norm(x, name):
        return F.layer_norm(x, (hidden,), w[f"{name}.weight"], w[f"{name}.bias"], 1e-12)

    def linear(x, name):
        return F.linear(x, w[f"{name}.weight"], w[f"{name}.bias"])

    h = w["embeddings.word_embeddings.weight"][ids] + w["embeddings.token_type_embeddings.weight"][types]
    h = norm(h + w["embeddings.position_embeddings.weight"][: ids.shape[1]], "embeddings.LayerNorm")
    sees = mask.bool()[:, None, None, :]
    if allowed is not None:
        sees = sees & allowed
    for layer in range(SIZES["num_hidden_layers"]):
        name = f"encoder.layer.{layer}"
        q, k, v = (
            linear(h, f"{name}.attention.self.{part}").view(*ids.shape, heads, -1).transpose(1, 2)
            for part in ("query", "key", "value")
        )
        context = F.scaled_dot_product_attention(q, k, v, attn_mask=sees).transpose(1, 2).flatten(2)
        a = norm(linear(context, f"{name}.attention.output.dense") + h, f"{name}.attention.output.LayerNorm")
        inner = F.gelu(linear(a, f"{name}.intermediate.dense"))
        h = norm(linear(inner, f"{name}.output.dense") + a, f"{name}.output.LayerNorm")
    return h * mask.bool()[..., None]


@pytest.mark.parametrize("left", [False, True], ids=["right", "left"])
def test_padding_on_either_side(encoder, left):
    ids, mask, types = make_inputs(left=left)
    found = encoder(ids, mask, types)
    torch.testing.assert_close(found, reference(ids, mask, types), rtol=0, atol=1e-12)
    assert (found[mask == 0] == 0).all()


def test_without_padding(encoder):
    ids, _, _ = make_inputs([9, 9])
    ones, zeros = torch.ones_like(ids), torch.zeros_like(ids)
    expected = reference(ids, ones, zeros)
    for found in (encoder(ids), encoder(ids.int(), ones), encoder(ids, ones.bool(), zeros)):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def test_masks(encoder):
    ids, mask, types = make_inputs()
    place = torch.arange(ids.shape[1])
    distance, first = place - place[:, None], place < 2
    for name, allowed in (
        ("window:5,2", (distance >= -5) & (distance <= 2)),
        (["causal", "sliding:4"], (distance >= -4) & (distance <= 0)),
        ("longformer:3,2", (distance.abs() <= 3) | first | first[:, None]),
    ):
        found = encoder(ids, mask, types, mask=name)
        torch.testing.assert_close(found, reference(ids, mask, types, allowed), rtol=0, atol=1e-12)


def test_rows(encoder):
    ids, mask, types = make_inputs()
    kept = mask.bool()
    batch = encoder.batch(LENGTHS)
    assert batch.rows() == sum(LENGTHS)
    expected = reference(ids, mask, types)[kept]
    torch.testing.assert_close(encoder.encode_rows(ids[kept], batch, types[kept]), expected, rtol=0, atol=1e-12)


def test_a_sequence_without_tokens_and_none_at_all(encoder):
    ids, mask, types = make_inputs([4, 0, 2])
    expected = reference(ids[[0, 2]], mask[[0, 2]], types[[0, 2]])
    found = encoder(ids, mask, types)
    torch.testing.assert_close(found[[0, 2]], expected, rtol=0, atol=1e-12)
    assert (found[1] == 0).all()
    assert encoder(ids, torch.zeros_like(ids)).abs().max() == 0
    assert encoder(ids[:, :0]).shape == (3, 0, SIZES["hidden_size"])


def test_the_states_of_transformers(folder):
    transformers = pytest.importorskip("transformers")
    theirs = transformers.BertModel.from_pretrained(folder, add_pooling_layer=False).eval()
    ours = seqfuse.Encoder.from_pretrained(folder, device="cpu")
    ids, mask, types = make_inputs()
    with torch.no_grad():
        expected = theirs(ids, attention_mask=mask, token_type_ids=types).last_hidden_state
    torch.testing.assert_close(ours(ids, mask, types), expected * mask[..., None], rtol=0, atol=2e-5)


def test_it_says_what_it_is(encoder):
    assert repr(encoder) == "Encoder(2 layers, 32 wide, vocabulary 50, float64 on cpu)"
    assert (encoder.hidden_size, encoder.max_length) == (32, POSITIONS)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda e, i, m: e(i.float()), r"input_ids is a torch.float32; expected a tensor of integers"),
        (lambda e, i, m: e(i[0]), r"input_ids is \[70\]; expected \[B, N\]"),
        (lambda e, i, m: e(i + VOCABULARY), r"input_ids has \d+; expected 0 to 49"),
        (lambda e, i, m: e(i - VOCABULARY), r"input_ids has -\d+; expected 0 to 49"),
        (lambda e, i, m: e(i, m[:, 1:]), r"attention_mask is \[4, 69\]; expected \[4, 70\], as input_ids"),
        (lambda e, i, m: e(i, m * 2), "attention_mask has values other than 0 and 1"),
        (lambda e, i, m: e(i, m, m + 1), "token_type_ids has 2; expected 0 to 1"),
        (lambda e, i, m: e(i, mask="slidin"), "there is no kind 'slidin'"),
        (lambda e, i, m: e(i.repeat(1, 3)), r"input_ids is \[4, 210\]; this model takes sequences of up to 150"),
        (lambda e, i, m: e.batch([3, -1]), "a sequence has -1 tokens; expected 0 to 150"),
        (lambda e, i, m: e.encode_rows(i[0], e.batch([3])), r"ids is Long \[70\] on cpu; expected int64 \[3\] on cpu"),
    ],
)
def test_wrong_arguments_are_named(encoder, call, message):
    ids, mask, _ = make_inputs()
    with pytest.raises(ValueError, match=message):
        call(encoder, ids, mask)


def test_wrong_folders_and_dtypes_are_named(folder, tmp_path):
    with pytest.raises(ValueError, match="is not a folder"):
        seqfuse.Encoder.from_pretrained(tmp_path / "none")
    with pytest.raises(ValueError, match="expected float32 or float64 on a CPU"):
        seqfuse.Encoder.from_pretrained(folder, dtype=torch.float16, device="cpu")
    other = write_bert(tmp_path / "other")
    described = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps(described | {"intermediate_size": 47}))
    with pytest.raises(ValueError, match=r"bert.encoder.layer.0.intermediate.dense.weight is \[48, 32\]"):
        seqfuse.Encoder.from_pretrained(other, device="cpu")


@needs_gpu
@pytest.mark.parametrize("dtype", HALF_TYPES)
def test_on_a_gpu_also_in_a_graph(folder, dtype):
    encoder = seqfuse.Encoder.from_pretrained(folder, dtype=dtype, device="cuda")
    assert encoder.device == torch.device("cuda", torch.cuda.current_device())
    ids, mask, types = make_inputs()
    found = encoder(ids, mask, types)
    expected = reference(ids, mask, types)
    relative = (found.cpu().double() - expected).norm() / expected.norm()
    assert relative < (0.01 if dtype == torch.float16 else 0.05)
    rows, batch = ids[mask.bool()].cuda(), encoder.batch(LENGTHS)
    encoder.encode_rows(rows, batch)  # libraries allocate on the first call
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        states = encoder.encode_rows(rows, batch)
    rows.copy_(rows.flip(0))
    graph.replay()
    torch.testing.assert_close(states, encoder.encode_rows(rows, batch), rtol=0, atol=0)


def write_plan(folder, **changes):
    """A plan of two sequences of 5 tokens, by a scheme that fuses QK + mask and bias + residual + norm."""
    config = json.loads((folder / "config.json").read_text())
    model = {
        "hidden": config["hidden_size"],
        "heads": config["num_attention_heads"],
        "inner": config["intermediate_size"],
        "layers": config["num_hidden_layers"],
        "activation": config["hidden_act"],
    }
    plan = {"format": 1, "model": model, "batch": 2, "seq": 5, "mask": "sliding:1", "dtype": "float64", "card": "cpu"}
    plan |= {
        "scheme": 42346,
        "choices": {},
        "milliseconds": 1.0,
        "default_milliseconds": 1.0,
        "version": "",
        "date": "",
    }
    file = folder / "plan.json"
    file.write_text(json.dumps(plan | changes))
    return file


def test_plans_compute_the_same(folder, encoder):
    planned = seqfuse.Encoder.from_pretrained(folder, dtype=torch.float64, device="cpu", plan=write_plan(folder))
    ids, _, types = make_inputs([5, 5])
    expected = encoder(ids, None, types, mask="sliding:1")
    torch.testing.assert_close(planned(ids, None, types, mask="sliding:1"), expected, rtol=0, atol=1e-12)


def test_plans_are_refused_with_the_reason(folder):
    def load(**changes):
        return seqfuse.Encoder.from_pretrained(
            folder, dtype=torch.float64, device="cpu", plan=write_plan(folder, **changes)
        )

    with pytest.raises(ValueError, match="for the card 'NVIDIA H200', and this is 'cpu'"):
        load(card="NVIDIA H200")
    with pytest.raises(ValueError, match="for float16, and the model is float64"):
        load(dtype="float16")
    with pytest.raises(ValueError, match="scheme 1365 is not legal"):
        load(scheme=1365)
    with pytest.raises(ValueError, match="2 sequences of 5 tokens, and the batch has 1 of 4 to 4"):
        load().batch([4], mask="sliding:1")
    with pytest.raises(ValueError, match="for the mask sliding:1, and mask is none"):
        load().batch([5, 5])
