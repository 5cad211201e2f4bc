"""seqfuse.apply_fused_kernels on GPT-NeoX of transformers: the same results, and the operators are really called."""

import copy

import pytest
import torch

import seqfuse
from cases import HALF_TYPES, needs_gpu

transformers = pytest.importorskip("transformers", reason="transformers is not installed (`make setup` installs it)")
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM, GPTNeoXForSequenceClassification  # noqa: E402
from transformers.models.gpt_neox.modeling_gpt_neox import GPTNeoXLayer  # noqa: E402

LAYERS = 3
PARALLEL = {"dual_layer_norm": 1, "add_dual_layer_norm": LAYERS - 1, "add_layer_norm": 1}
SEQUENTIAL = {"add_layer_norm": 2 * LAYERS}
both_residuals = pytest.mark.parametrize("parallel", [True, False], ids=["parallel", "sequential"])


def make_model(parallel=True, dtype=torch.float64, device="cpu", kind=GPTNeoXForCausalLM, **options):
    config = GPTNeoXConfig(
        vocab_size=50, hidden_size=32, num_hidden_layers=LAYERS, num_attention_heads=2, intermediate_size=48,
        max_position_embeddings=64, use_parallel_residual=parallel, bos_token_id=0, eos_token_id=None, **options,
    )  # fmt: skip
    model = kind(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(std=0.3)
            if name.endswith("norm.weight"):
                parameter.add_(1)
    return model.to(dtype=dtype, device=device)


def ids(rows=2, tokens=9):
    return torch.randint(50, (rows, tokens))


def hidden_states(model, tokens):
    with torch.no_grad():
        return model(tokens, output_hidden_states=True).hidden_states


def relative_difference(found, expected):
    return max(float((f - e).norm() / e.norm()) for f, e in zip(found, expected, strict=True))


@both_residuals
@pytest.mark.parametrize(
    ("place", "dtype", "tolerance"),
    [
        ("cpu", torch.float64, 1e-14),
        ("cpu", torch.float32, 2e-6),
        *(pytest.param("cuda", dtype, 0.01, marks=needs_gpu) for dtype in HALF_TYPES),
        pytest.param("cuda", torch.float32, 2e-6, marks=needs_gpu),
    ],
)
def test_hidden_states(parallel, place, dtype, tolerance):
    model, tokens = make_model(parallel, dtype, place), ids().to(place)
    expected = hidden_states(model, tokens)
    seqfuse.apply_fused_kernels(model)
    found = hidden_states(model, tokens)
    assert len(found) == LAYERS + 1
    assert torch.equal(found[0], expected[0])
    assert relative_difference(found, expected) < tolerance


@both_residuals
def test_attentions(parallel):
    model, tokens = make_model(parallel, attn_implementation="eager"), ids()
    with torch.no_grad():
        expected = model(tokens, output_attentions=True).attentions
        seqfuse.apply_fused_kernels(model)
        found = model(tokens, output_attentions=True).attentions
    assert len(found) == LAYERS
    assert relative_difference(found, expected) < 1e-14


@both_residuals
def test_operators_are_called_as_often_as_they_say(parallel):
    model, tokens = make_model(parallel), ids()
    expected = PARALLEL if parallel else SEQUENTIAL
    fused = seqfuse.apply_fused_kernels(model)
    assert (fused.calls, fused.expected_calls) == ({}, expected)
    with torch.no_grad(), torch.profiler.profile() as profile:
        model(tokens)
    assert fused.calls == expected
    by_torch = {event.key: event.count for event in profile.key_averages()}
    assert {name.removeprefix("seqfuse::"): count for name, count in by_torch.items() if name in NAMES} == expected
    # What is left of the framework's own: the norm of the embedding before sequential layers; rotary additions.
    assert by_torch.get("aten::layer_norm", 0) == (0 if parallel else 1)
    assert by_torch["aten::add"] == 2 * LAYERS + 1, "queries and keys of a layer; a token's position"


NAMES = {f"seqfuse::{name}" for name in (*PARALLEL, *SEQUENTIAL)}


@both_residuals
@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_generate(parallel, cache):
    """Rows of different lengths, padded on the left; a pass for the prompt, then one for each further token."""
    model, tokens = make_model(parallel), ids()
    mask = torch.ones_like(tokens)
    mask[0, :4] = 0
    options = {
        "attention_mask": mask, "max_new_tokens": 6, "do_sample": False, "pad_token_id": 0,
        "cache_implementation": cache, "disable_compile": True,
    }  # fmt: skip
    expected = model.generate(tokens, **options)
    fused = seqfuse.apply_fused_kernels(model)
    assert torch.equal(model.generate(tokens, **options), expected)
    assert fused.calls == {name: 6 * count for name, count in fused.expected_calls.items()}
    fused.reset_calls()
    assert fused.calls == {}


@both_residuals
def test_a_hook_that_replaces_hidden_states(parallel):
    model, tokens = make_model(parallel), ids()
    fused = seqfuse.apply_fused_kernels(model)
    model.gpt_neox.layers[1].register_forward_hook(lambda module, args, output: output * 1.5)
    found = hidden_states(model, tokens)
    assert fused.calls.get("dual_layer_norm", 0) == (2 if parallel else 0)  # one more, of what the hook returned
    fused.undo()
    assert relative_difference(found, hidden_states(model, tokens)) < 1e-14


def test_a_hook_that_undoes_the_fusion_is_reported():
    model = make_model()
    model.gpt_neox.layers[1].register_forward_hook(lambda module, args, output: output * 1.5)
    with pytest.raises(RuntimeError, match="'dual_layer_norm': 2.*is there a hook that replaces hidden states"):
        seqfuse.apply_fused_kernels(model)


@both_residuals
def test_gradients(parallel):
    model, tokens = make_model(parallel), ids()

    def gradients():
        model.zero_grad()
        model(tokens, labels=tokens).loss.backward()
        return [parameter.grad.clone() for parameter in model.parameters()]

    model.train()
    expected = gradients()
    seqfuse.apply_fused_kernels(model)
    torch.testing.assert_close(gradients(), expected)


@both_residuals
def test_compile(parallel):
    """One graph, with the same operators in it."""
    model, tokens = make_model(parallel), ids()
    expected = hidden_states(model, tokens)
    seqfuse.apply_fused_kernels(model)
    graphs = []

    def backend(graph, inputs):
        graphs.append([node.target for node in graph.graph.nodes if node.op == "call_function"])
        return graph

    compiled = torch.compile(model, backend=backend, fullgraph=True)
    with torch.no_grad():
        for _ in range(2):
            found = compiled(tokens, use_cache=False, output_hidden_states=True).hidden_states
    assert relative_difference(found, expected) < 1e-14
    assert len(graphs) == 1
    for name, count in (PARALLEL if parallel else SEQUENTIAL).items():
        assert sum(str(target).startswith(f"seqfuse.{name}") for target in graphs[0]) == count


@both_residuals
def test_undo(parallel):
    model, tokens = make_model(parallel), ids()
    expected, keys, attributes = hidden_states(model, tokens), list(model.state_dict()), attributes_of(model)
    fused = seqfuse.apply_fused_kernels(model)
    assert list(model.state_dict()) == keys
    fused.undo()
    fused.undo()
    assert attributes_of(model) == attributes
    found = hidden_states(model, tokens)
    assert all(torch.equal(f, e) for f, e in zip(found, expected))
    assert sum(fused.calls.values()) == 0
    seqfuse.apply_fused_kernels(model).undo()


def attributes_of(model):
    return [sorted(vars(module)) for module in model.gpt_neox.modules()]


def test_a_copy_is_a_model_of_its_own():
    model, tokens = make_model(), ids()
    fused = seqfuse.apply_fused_kernels(model)
    copied = copy.deepcopy(model)
    with torch.no_grad():
        expected = model(tokens).logits
        for parameter in model.parameters():
            parameter.zero_()
        fused.reset_calls()
        assert torch.equal(copied(tokens).logits, expected)
    assert fused.calls == {}


def test_models_with_another_head_and_without():
    for model in (
        make_model(kind=GPTNeoXForSequenceClassification, pad_token_id=0, num_labels=3),
        make_model().gpt_neox,
    ):
        tokens = ids()
        with torch.no_grad():
            expected = model(tokens)[0]
            fused = seqfuse.apply_fused_kernels(model)
            torch.testing.assert_close(model(tokens)[0], expected)
        assert fused.calls == PARALLEL


# ---- What is refused ------------------------------------------------------------------------------------


def with_scaled_norm(model):
    class ScaledNorm(torch.nn.LayerNorm):
        pass

    model.gpt_neox.layers[1].input_layernorm = ScaledNorm(32)
    return model


def with_missing_part(model):
    del model.gpt_neox.layers[2].mlp
    return model


def with_norm_hook(model):
    model.gpt_neox.final_layer_norm.register_forward_hook(lambda module, args, output: output)
    return model


def offloaded(model):
    model.gpt_neox.layers[0]._hf_hook = object()
    return model


def quantised(model):
    model.hf_quantizer = object()
    return model


def patched(model):
    seqfuse.apply_fused_kernels(model)
    return model


def half_converted(model):
    model.gpt_neox.layers[0].input_layernorm.float()
    return model


def with_other_eps(model):
    model.gpt_neox.layers[1].post_attention_layernorm.eps = 1e-3
    return model


REFUSED = {
    "no model": (lambda: torch.nn.Linear(2, 2), TypeError, "a torch.nn.modules.linear.Linear; expected a GPTNeoX"),
    "another model": (lambda: transformers.GPT2Model(transformers.GPT2Config(n_layer=1, n_embd=8, n_head=1)),
                      TypeError, "GPT2Model; expected a GPTNeoX"),
    "compiled": (lambda: torch.compile(make_model()), TypeError, "apply first, then call torch.compile"),
    "16 bits on a CPU": (lambda: make_model(dtype=torch.bfloat16), ValueError, "bfloat16 on a cpu.*float32, float64"),
    "no device": (lambda: make_model().to("meta"), ValueError, "the model is on meta"),
    "mixed dtypes": (lambda: half_converted(make_model()), ValueError, "float32, float64; expected one dtype"),
    "another norm": (lambda: with_scaled_norm(make_model()), ValueError,
                     r"layers.1.input_layernorm is a ScaledNorm; expected torch.nn.LayerNorm"),
    "two eps": (lambda: with_other_eps(make_model()), ValueError, r"norms of layers.1 have eps 1e-05 and 0.001"),
    "missing part": (lambda: with_missing_part(make_model()), ValueError, r"layers.2 has no mlp \(transformers [45]"),
    "hook on a norm": (lambda: with_norm_hook(make_model()), ValueError, "final_layer_norm has hooks"),
    "offloaded": (lambda: offloaded(make_model()), ValueError, r"gpt_neox.layers.0 is managed by accelerate"),
    "quantised": (lambda: quantised(make_model()), ValueError, "the model is quantised"),
    "twice": (lambda: patched(make_model()), ValueError, r"layers.0.forward is replaced already"),
    "dropout": (lambda: make_model(hidden_dropout=0.1).train(), RuntimeError, "training mode and has dropout"),
    "attention dropout": (lambda: make_model(attention_dropout=0.1).train(), RuntimeError, "training mode and has"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refusals(case):
    make, error, message = REFUSED[case]
    with pytest.raises(error, match=message):
        seqfuse.apply_fused_kernels(make())


@both_residuals
def test_layers_that_compute_something_else_are_found(parallel, monkeypatch):
    """As those of another version of transformers might."""
    plain = GPTNeoXLayer.forward
    model, tokens = make_model(parallel), ids()
    monkeypatch.setattr(
        GPTNeoXLayer, "forward", lambda self, states, **options: plain(self, states, **options) + 0.1 * states
    )
    expected, attributes = hidden_states(model, tokens), attributes_of(model)
    with pytest.raises(RuntimeError, match=r"left as it was: hidden state 1 differs by 0\.[0-9]+ of its size"):
        seqfuse.apply_fused_kernels(model)
    assert attributes_of(model) == attributes
    assert all(torch.equal(f, e) for f, e in zip(hidden_states(model, tokens), expected))


def test_what_is_switched_on_later():
    model, tokens = make_model(hidden_dropout=0.1), ids()
    seqfuse.apply_fused_kernels(model)
    with pytest.raises(RuntimeError, match="training mode and has dropout"):
        model.train()(tokens)
    model.eval()(tokens)
    model = make_model(dtype=torch.float32)
    fused = seqfuse.apply_fused_kernels(model)
    with torch.autocast("cpu", dtype=torch.bfloat16), pytest.raises(RuntimeError, match="torch.autocast is on"):
        model(tokens)
    model.gradient_checkpointing_enable()
    with pytest.raises(RuntimeError, match="gradient checkpointing is on"):
        model.train()(tokens)
    fused.undo()
    model(tokens)
