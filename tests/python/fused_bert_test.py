"""seqfuse.apply_fused_encoder on BERT of transformers: the same results, and the operators are really called."""

import pytest
import torch

import seqfuse
from cases import HALF_TYPES, needs_gpu

transformers = pytest.importorskip("transformers", reason="transformers is not installed (`make setup` installs it)")
from transformers import BertConfig, BertForMaskedLM, BertForSequenceClassification, BertModel  # noqa: E402

LAYERS = 3
CALLS = {"rows_attention": LAYERS, "bias_residual_norm": 2 * LAYERS, "bias_activation": LAYERS}


def make_model(dtype=torch.float64, device="cpu", kind=BertModel, **options):
    config = BertConfig(
        vocab_size=50, hidden_size=32, num_hidden_layers=LAYERS, num_attention_heads=2, intermediate_size=48,
        max_position_embeddings=64, **options,
    )  # fmt: skip
    model = kind(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(std=0.3)
            if name.endswith("LayerNorm.weight"):
                parameter.add_(1)
    return model.to(dtype=dtype, device=device)


def make_inputs(device="cpu", lengths=(9, 4, 1)):
    ids = torch.randint(50, (len(lengths), max(lengths)), device=device)
    mask = (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long().to(device)
    return {"input_ids": ids, "attention_mask": mask}


def with_hook(model):
    model.encoder.layer[1].output.dense.register_forward_hook(lambda module, given, result: result)
    return model


def relative_difference(found, expected):
    return float((found.double() - expected.double()).norm() / expected.double().norm())


@pytest.mark.parametrize(
    ("place", "dtype", "tolerance"),
    [
        ("cpu", torch.float64, 1e-13),
        ("cpu", torch.float32, 2e-6),
        *(pytest.param("cuda", dtype, 0.02, marks=needs_gpu) for dtype in HALF_TYPES),
    ],
)
def test_states_and_calls(place, dtype, tolerance):
    model, inputs = make_model(dtype, place), make_inputs(place)
    mask = inputs["attention_mask"]
    with torch.no_grad():
        expected = model(**inputs)
        fused = seqfuse.apply_fused_encoder(model)
        assert fused.calls == {}
        found = model(**inputs)
        assert fused.calls == fused.expected_calls == CALLS
        assert relative_difference(found.last_hidden_state, expected.last_hidden_state * mask[..., None]) < tolerance
        assert relative_difference(found.pooler_output, expected.pooler_output) < tolerance
        assert (found.last_hidden_state[mask == 0] == 0).all()
        without = make_inputs(place, (5, 5))
        again = model(without["input_ids"]).last_hidden_state
        fused.undo()
        assert relative_difference(again, model(**without).last_hidden_state) < tolerance
        fused.undo()


def test_hidden_states():
    model, inputs = make_model(), make_inputs()
    kept = inputs["attention_mask"].bool()
    with torch.no_grad():
        expected = model(**inputs, output_hidden_states=True).hidden_states
        seqfuse.apply_fused_encoder(model)
        found = model(**inputs, output_hidden_states=True).hidden_states
    assert len(found) == len(expected) == LAYERS + 1
    for ours, theirs in zip(found, expected):
        assert relative_difference(ours[kept], theirs[kept]) < 1e-13


@pytest.mark.parametrize("kind", [BertForMaskedLM, BertForSequenceClassification])
@pytest.mark.parametrize("activation", ["gelu", "gelu_new", "relu"])
def test_heads_and_activations(kind, activation):
    model, inputs = make_model(kind=kind, hidden_act=activation), make_inputs()
    with torch.no_grad():
        expected = model(**inputs).logits
        fused = seqfuse.apply_fused_encoder(model)
        found = model(**inputs).logits
    assert fused.calls == CALLS
    if kind is BertForMaskedLM:
        found, expected = (logits[inputs["attention_mask"].bool()] for logits in (found, expected))
    assert relative_difference(found, expected) < 1e-13


def test_with_gradients_the_layers_of_transformers_run():
    model, inputs = make_model(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0), make_inputs()
    expected = torch.autograd.grad(model(**inputs).last_hidden_state[0].sum(), model.encoder.layer[0].output.dense.bias)
    fused = seqfuse.apply_fused_encoder(model)
    with pytest.warns(UserWarning, match="gradients are on"):
        states = model(**inputs).last_hidden_state
    found = torch.autograd.grad(states[0].sum(), model.encoder.layer[0].output.dense.bias)
    assert torch.equal(found[0], expected[0])
    assert (fused.fallbacks, fused.calls) == (1, {})
    with torch.inference_mode():
        model(**inputs)
    assert (fused.fallbacks, fused.calls) == (1, CALLS)


def test_changed_weights_are_used():
    model, inputs = make_model(), make_inputs()
    fused = seqfuse.apply_fused_encoder(model)
    with torch.no_grad():
        model(**inputs)
        model.encoder.layer[1].attention.self.key.weight.mul_(0.5)
        found = model(**inputs).last_hidden_state
        fused.undo()
        expected = model(**inputs).last_hidden_state * inputs["attention_mask"][..., None]
    assert relative_difference(found, expected) < 1e-13


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: torch.nn.Linear(2, 2), TypeError, "is a torch.nn.modules.linear.Linear; expected a BertModel"),
        (lambda: make_model(torch.float16), ValueError, "the layers are float16 on a cpu, where the fused ones take"),
        (lambda: make_model(hidden_act="silu"), ValueError, "hidden_act is 'silu'; expected gelu, gelu_new, relu"),
        (lambda: make_model(is_decoder=True), ValueError, "is_decoder is true; expected an encoder"),
        (lambda: with_hook(make_model()), ValueError, r"encoder.layer.1.output.dense has hooks, which a fused layer"),
        (lambda: make_model().train(), RuntimeError, "the model is in training mode and has dropout"),
    ],
)  # fmt: skip
def test_models_that_do_not_fit_are_refused(make, error, message):
    model = make()
    before = dict(vars(model))
    with pytest.raises(error, match=message):
        seqfuse.apply_fused_encoder(model)
    assert vars(model).keys() == before.keys()


def test_layers_that_compute_something_else_are_found(monkeypatch):
    model = make_model()
    layer = type(model.encoder.layer[0])
    chunk = layer.feed_forward_chunk
    monkeypatch.setattr(layer, "feed_forward_chunk", lambda self, x: 1.5 * chunk(self, x))
    with pytest.raises(RuntimeError, match=r"hidden state 1 differs by .* of its size"):
        seqfuse.apply_fused_encoder(model)
    assert "forward" not in vars(model.encoder)


def test_calls_that_do_not_fit_are_refused():
    model, inputs = make_model(), make_inputs()
    seqfuse.apply_fused_encoder(model)
    with torch.no_grad():
        with pytest.raises(RuntimeError, match="output_attentions or encoder_hidden_states is set"):
            model(**inputs, output_attentions=True)
        with pytest.raises(RuntimeError, match=r"attention_mask is \[3, 1, 9, 9\]; expected \[3, 9\]"):
            model(inputs["input_ids"], attention_mask=torch.ones(3, 1, 9, 9))
        with pytest.raises(RuntimeError, match="the encoder was called by itself"):
            model.encoder(torch.zeros(1, 2, 32, dtype=torch.float64))
    with pytest.raises(ValueError, match="forward is replaced already"):
        seqfuse.apply_fused_encoder(model)
