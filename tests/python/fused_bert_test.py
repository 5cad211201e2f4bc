"""seqfuse.apply_fused_encoder on BERT of transformers: the same results, and the operators are really called."""

import copy
import threading

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


@pytest.mark.parametrize("padding", ["right", "left", "inside"])
@pytest.mark.parametrize("all_states", [False, True])
def test_padding_anywhere(padding, all_states):
    model, inputs = make_model(), make_inputs()
    if padding == "left":
        inputs["attention_mask"] = inputs["attention_mask"].flip(1)
    elif padding == "inside":
        inputs["attention_mask"][0, 3:5] = 0
    kept = inputs["attention_mask"].bool()
    with torch.no_grad():
        expected = model(**inputs, output_hidden_states=all_states)
        seqfuse.apply_fused_encoder(model)
        found = model(**inputs, output_hidden_states=all_states)
    assert relative_difference(found.last_hidden_state[kept], expected.last_hidden_state[kept]) < 1e-13
    if all_states:
        assert len(found.hidden_states) == len(expected.hidden_states) == LAYERS + 1
        for ours, theirs in zip(found.hidden_states, expected.hidden_states):
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


@pytest.mark.parametrize("change", ["dtype", "data", "unrecorded"])
def test_other_changes_of_weights(change):
    model, inputs = make_model(), make_inputs()
    fused = seqfuse.apply_fused_encoder(model)
    weight = model.encoder.layer[1].attention.self.key.weight
    with torch.no_grad():
        if change == "dtype":
            model.float()
        elif change == "data":
            for _ in range(4):  # the allocator may give a freed address again
                weight.data = weight.data * 0.5
        else:
            weight.data.mul_(0.5)
            fused.refresh()
        found = model(**inputs).last_hidden_state
        fused.undo()
        expected = model(**inputs).last_hidden_state * inputs["attention_mask"][..., None]
    assert relative_difference(found, expected) < (2e-6 if change == "dtype" else 1e-13)


def test_checkpointed_layers_are_run_again_by_transformers():
    model, inputs = make_model(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0), make_inputs()
    bias = model.encoder.layer[0].output.dense.bias
    model.train()
    model.gradient_checkpointing_enable()
    expected = torch.autograd.grad(model(**inputs).last_hidden_state[0].sum(), bias)
    seqfuse.apply_fused_encoder(model)
    with pytest.warns(UserWarning, match="gradients are on"):
        states = model(**inputs).last_hidden_state
    assert torch.equal(torch.autograd.grad(states[0].sum(), bias)[0], expected[0])


def test_a_copy_has_layers_and_counts_of_its_own():
    model, inputs = make_model(), make_inputs()
    fused = seqfuse.apply_fused_encoder(model)
    other, others_fused = copy.deepcopy((model, fused))
    with torch.no_grad():
        for parameter in other.encoder.parameters():
            parameter.mul_(0.5)
        found = other(**inputs).last_hidden_state
        assert (fused.calls, others_fused.calls) == ({}, CALLS)
        ours = model(**inputs).last_hidden_state
        others_fused.undo()
        assert fused.calls == CALLS and "forward" in vars(model.encoder.layer[0])
        fused.undo()
        for copied, states in ((other, found), (model, ours)):
            expected = copied(**inputs).last_hidden_state * inputs["attention_mask"][..., None]
            assert relative_difference(states, expected) < 1e-13


def test_threads():
    model = make_model()
    fused = seqfuse.apply_fused_encoder(model)
    batches = [make_inputs(lengths=lengths) for lengths in ((9, 4, 1), (5, 5), (2, 30), (17,))]
    with torch.no_grad():
        expected = [model(**batch).last_hidden_state for batch in batches]
    wrong, rounds = [], 8

    def work(batch, states):
        for _ in range(rounds):
            with torch.no_grad():
                if not torch.equal(model(**batch).last_hidden_state, states):
                    wrong.append(batch)

    threads = [threading.Thread(target=work, args=pair) for pair in zip(batches, expected)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert fused.calls == {name: count * len(batches) * (rounds + 1) for name, count in CALLS.items()}


def test_nothing_is_left_of_a_failed_call():
    model, inputs = make_model(), make_inputs()
    seqfuse.apply_fused_encoder(model)
    with torch.no_grad():
        with pytest.raises(IndexError):
            model(inputs["input_ids"] + 50, attention_mask=inputs["attention_mask"])
        with pytest.raises(RuntimeError, match="the encoder was called by itself"):
            model.encoder(torch.zeros(3, 9, 32, dtype=torch.float64))


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
