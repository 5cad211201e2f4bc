"""Hugging Face's GPT-NeoX with fused norms. h: hidden states, n1 and n2: what attention and MLP read.

    parallel residual     n1, n2 = dual_layer_norm(h)                                     before the first layer
                          h', n1', n2' = add_dual_layer_norm([mlp(n2), attention(n1), h]) in a layer, for the next one
                          h', out = add_layer_norm([mlp(n2), attention(n1), h])           in the last layer
    sequential residual   r, n2 = add_layer_norm([attention(n1), h])                      in a layer
                          h', n1' = add_layer_norm([mlp(n2), r])                          in a layer, for the next one

Sums are rounded in the framework's order. A layer hands its norms on together with its hidden states; a reader takes
them only if it gets the very tensor that they belong to, so a hook that replaces hidden states stays right.
"""

import inspect
import types
from collections import Counter
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from seqfuse._hidden_states import check_equal
from seqfuse.gpt_neox import checks
from seqfuse.norms import add_dual_layer_norm, add_layer_norm, dual_layer_norm


def apply_fused_kernels(model: nn.Module) -> "FusedKernels":
    """Makes the layers of a GPT-NeoX of transformers call seqfuse's fused norms, in place.

    model: a GPTNeoXForCausalLM, GPTNeoXModel or another GPT-NeoX class, on one device; float32 or float64 on a CPU,
    float32, float16 or bfloat16 on a GPU. Weights, state_dict, generate, caches, output_hidden_states, gradients and
    torch.compile(model) afterwards work as before. Sums are equal to the framework's bit by bit, norms to
    rounding (docs/ops.md).

    Before it returns, it runs three tokens through the model with and without the fused layers and compares all hidden
    states, so that a version of transformers whose layers compute something else is found. Raises TypeError,
    ValueError or RuntimeError, which say what to change, and leaves the model as it was: another class, another layout,
    offloaded or quantised layers, mixed dtypes, hooks on norms, training with dropout or gradient checkpointing.
    """
    base = checks.base_of(model)
    checks.check_layout(base)
    checks.check_placement(model, base)
    fused = FusedKernels(base)
    checks.check_mode(model, fused._seam.has_dropout)
    expected = _hidden_states(base)
    fused._patch()
    try:
        check_equal(_hidden_states(base), expected)
        if fused.calls != fused.expected_calls:
            raise RuntimeError(
                f"of the fused operators {fused.calls} were called, expected {fused.expected_calls}; is there a hook "
                "that replaces hidden states?"
            )
    except BaseException as error:
        fused.undo()
        if not isinstance(error, Exception):
            raise
        raise RuntimeError(
            "apply_fused_kernels: a run with fused layers failed, so the model is left as it was: "
            f"{error} ({checks.transformers_version()})"
        ) from error
    fused.reset_calls()
    return fused


class FusedKernels:
    """What apply_fused_kernels did to a model: counts calls, and can be undone.

    calls: calls of each fused operator since it was applied, or since reset_calls(). Calls inside a compiled graph are
    not counted: count those with torch.profiler. expected_calls: calls in one forward pass, which while decoding is one
    token of every text of the batch.
    """

    def __init__(self, base: nn.Module) -> None:
        self._base = base
        dropouts = [module for module in base.modules() if isinstance(module, nn.Dropout)]
        rates = [module.p for module in dropouts] + [getattr(base.config, "attention_dropout", 0.0)]
        parameters = inspect.signature(type(base.layers[0]).forward).parameters
        self._seam = _Seam(has_dropout=any(rates), returns_tuple="output_attentions" in parameters)

    @property
    def calls(self) -> dict[str, int]:
        return dict(self._seam.calls)

    @property
    def expected_calls(self) -> dict[str, int]:
        expected = Counter()
        for index, layer in enumerate(self._base.layers):
            last = index + 1 == len(self._base.layers)
            expected["dual_layer_norm"] += layer.use_parallel_residual and index == 0
            expected["add_dual_layer_norm"] += layer.use_parallel_residual and not last
            expected["add_layer_norm"] += 2 * (not layer.use_parallel_residual) or last
        return {name: count for name, count in expected.items() if count}

    def reset_calls(self) -> None:
        self._seam.calls.clear()

    def undo(self) -> None:
        """The model is as it was. Does nothing the second time."""
        for module in (*self._base.layers, self._base.final_layer_norm):
            if vars(module).pop("_seqfuse_seam", None) is not None:
                vars(module).pop("_seqfuse_next", None)
                del module.forward
        self._seam.ready = None

    def _patch(self) -> None:
        layers = list(self._base.layers)
        for layer, following in zip(layers, [*layers[1:], None]):
            layer._seqfuse_seam = self._seam
            layer._seqfuse_next = _Norms(_norms_before(following) if following else [self._base.final_layer_norm])
            layer.forward = types.MethodType(_parallel if layer.use_parallel_residual else _sequential, layer)
        norm = self._base.final_layer_norm
        norm._seqfuse_seam = self._seam
        norm.forward = types.MethodType(_final_norm, norm)

    def __repr__(self) -> str:
        return f"FusedKernels({len(self._base.layers)} layers, a pass calls {self.expected_calls}, so far {self.calls})"


@dataclass
class _Norms:
    """Norms that belong to another module: in a plain object they are not registered a second time."""

    modules: list[nn.LayerNorm]


@dataclass
class _Seam:
    """What the patched modules of a model share."""

    has_dropout: bool
    returns_tuple: bool  # layers of transformers 4 do, those of 5 do not
    calls: Counter = field(default_factory=Counter)
    ready: tuple[Tensor, tuple[Tensor, ...]] | None = None  # hidden states and their norms

    def take(self, states: Tensor) -> tuple[Tensor, ...] | None:
        ready, self.ready = self.ready, None
        return ready[1] if ready is not None and ready[0] is states else None

    def count(self, name: str) -> None:
        if not torch.compiler.is_compiling():
            self.calls[name] += 1

    def add_norm(self, terms: list[Tensor], norms: list[nn.LayerNorm]) -> Tensor:
        """The sum of terms [..., H]; its norms are ready for whoever takes them."""
        shape = terms[0].shape
        rows = [term.reshape(-1, shape[-1]) for term in terms]
        if len(norms) == 2:
            results = add_dual_layer_norm(rows, *_weights(norms), norms[0].eps)
            self.count("add_dual_layer_norm")
        else:
            results = add_layer_norm(rows, *_weights(norms), norms[0].eps)
            self.count("add_layer_norm")
        states, *normed = (result.view(shape) for result in results)
        self.ready = (states, tuple(normed))
        return states

    def norm(self, states: Tensor, norms: list[nn.LayerNorm]) -> tuple[Tensor, ...]:
        """For states that come from elsewhere: the embedding, or a hook."""
        if len(norms) == 1:
            return (norms[0](states),)
        results = dual_layer_norm(states.reshape(-1, states.shape[-1]), *_weights(norms), norms[0].eps)
        self.count("dual_layer_norm")
        return tuple(result.view(states.shape) for result in results)


# The forward methods of a patched model. What attention gets is passed on by name, as the layer gets it.


def _parallel(layer: nn.Module, hidden_states: Tensor, attention_mask: Tensor | None = None, **options):
    seam = _enter(layer, hidden_states)
    n1, n2 = seam.take(hidden_states) or seam.norm(hidden_states, _norms_before(layer))
    attended, weights = layer.attention(n1, attention_mask=attention_mask, **options)
    states = seam.add_norm([layer.mlp(n2), attended, hidden_states], layer._seqfuse_next.modules)
    return _result(seam, states, weights, options)


def _sequential(layer: nn.Module, hidden_states: Tensor, attention_mask: Tensor | None = None, **options):
    seam = _enter(layer, hidden_states)
    (n1,) = seam.take(hidden_states) or seam.norm(hidden_states, _norms_before(layer))
    attended, weights = layer.attention(n1, attention_mask=attention_mask, **options)
    residual = seam.add_norm([attended, hidden_states], [layer.post_attention_layernorm])
    (n2,) = seam.take(residual)
    states = seam.add_norm([layer.mlp(n2), residual], layer._seqfuse_next.modules)
    return _result(seam, states, weights, options)


def _result(seam: "_Seam", states: Tensor, weights: Tensor | None, options: dict) -> Tensor | tuple:
    if not seam.returns_tuple:
        return states
    return (states, weights) if options.get("output_attentions") else (states,)


def _final_norm(norm: nn.LayerNorm, states: Tensor) -> Tensor:
    ready = norm._seqfuse_seam.take(states)
    return nn.LayerNorm.forward(norm, states) if ready is None else ready[0]


def _enter(layer: nn.Module, states: Tensor) -> _Seam:
    seam = layer._seqfuse_seam
    checks.check_mode(layer, seam.has_dropout)
    if torch.is_autocast_enabled(states.device.type):
        raise RuntimeError(
            "apply_fused_kernels: torch.autocast is on, under which norms and sums have several dtypes; convert the "
            "model instead (model.to(dtype)), or undo() the fused layers"
        )
    return seam


def _norms_before(layer: nn.Module) -> list[nn.LayerNorm]:
    """The norms that read a layer's input."""
    norms = [layer.input_layernorm]
    return [*norms, layer.post_attention_layernorm] if layer.use_parallel_residual else norms


def _weights(norms: list[nn.LayerNorm]) -> list[Tensor | None]:
    return [weight for norm in norms for weight in (norm.weight, norm.bias)]


def _hidden_states(base: nn.Module) -> list[Tensor]:
    table = base.embed_in.weight
    ids = torch.arange(min(3, table.shape[0]), device=table.device).unsqueeze(0)
    with torch.no_grad():
        return list(base(ids, use_cache=False, output_hidden_states=True).hidden_states)
