"""Hugging Face's BERT with fused layers on rows without padding.

The model's embedding, pooler and heads stay as they are. Its encoder takes the padding out, runs the layers on the rows
that are left, and puts zeros back. A layer is four products and four kernels: attention, bias + activation, and twice
bias + residual + norm.
"""

import functools
import inspect
import threading
import warnings
from collections import Counter

import torch
from torch import Tensor, nn

from seqfuse._hidden_states import check_equal
from seqfuse.bert import checks
from seqfuse.masked_attention import BlockMask

_OPERATORS = {"rows_attention": 1, "bias_residual_norm": 2, "bias_activation": 1}  # calls of a layer


def apply_fused_encoder(model: nn.Module) -> "FusedEncoder":
    """Makes the encoder of a BERT of transformers call seqfuse's fused operators, in place.

    model: a BertModel, BertForMaskedLM, BertForSequenceClassification or another BERT class, on one device; float32 or
    float64 on a CPU, float16 or bfloat16 on a GPU. Weights and state_dict stay as they are. attention_mask is [B, N],
    1 for tokens and 0 for padding, or None; states of padding become 0 (transformers computes something there).
    output_hidden_states works, but then padding is computed.

    Threads may share the model, on a GPU on one stream. copy.deepcopy(model) is a model with fused layers and counts of
    its own; to undo those, copy both: model, fused = copy.deepcopy((model, fused)). Changed weights are used, but after
    edits that torch does not record (parameter.data.copy_(...)) call fused.refresh().

    Without gradients only (torch.no_grad() or torch.inference_mode()): where gradients are on and something requires
    them, as in training, the layers of transformers run instead, with a warning the first time; fused.fallbacks counts
    such passes.

    Before it returns, it runs three short texts through the model with and without the fused layers, also without
    output_hidden_states, and compares all hidden states and the calls. Raises TypeError, ValueError or RuntimeError,
    which say what to change, and leaves the model as it was.
    """
    base = checks.base_of(model)
    checks.check_config(base)
    checks.check_layout(base)
    checks.check_placement(base)
    with torch.no_grad():
        checks.check_mode(base)
        expected = _hidden_states(base)
        fused = FusedEncoder(base)
        try:
            check_equal(_hidden_states(base), expected)
            calls = {name: 2 * count for name, count in fused.expected_calls.items()}
            if fused.calls != calls:
                raise RuntimeError(f"of the fused operators {fused.calls} were called, expected {calls}")
        except BaseException as error:
            fused.undo()
            if not isinstance(error, Exception):
                raise
            raise RuntimeError(
                "apply_fused_encoder: a run with fused layers failed, so the model is left as it was: "
                f"{error} ({checks.transformers_version()})"
            ) from error
    fused.reset_calls()
    return fused


class _Pass(threading.local):
    """Of the pass that this thread runs."""

    given = None  # what the model was called with, until its encoder runs
    mask = None  # of the rows, while fused layers run; None: layers are those of transformers
    known_mask = (None, None)  # the last one made and what it is for


class FusedEncoder:
    """What apply_fused_encoder did to a model: counts calls, and can be undone.

    calls: calls of each fused operator since it was applied, or since reset_calls(). expected_calls: those of one pass.
    fallbacks: passes in which the layers of transformers ran, since gradients were on.
    """

    def __init__(self, base: nn.Module) -> None:
        self._base = base
        self._parameters = list(inspect.signature(type(base).forward).parameters)[1:]
        self.__setstate__({"_calls": Counter(), "fallbacks": 0})
        self._hooks = (
            base.register_forward_pre_hook(self._before_model, with_kwargs=True),
            base.register_forward_hook(self._after_model, always_call=True),
        )
        base.encoder.forward = self._encoder
        for layer in base.encoder.layer:
            layer.forward = functools.partial(self._layer, layer)

    def __getstate__(self) -> dict:
        """For copies: without locks, caches and the running pass."""
        return {name: value for name, value in vars(self).items() if name not in ("_lock", "_pass", "_qkv")}

    def __setstate__(self, state: dict) -> None:
        vars(self).update(state, _lock=threading.Lock(), _pass=_Pass(), _qkv={})

    @property
    def calls(self) -> dict[str, int]:
        return dict(self._calls)

    @property
    def expected_calls(self) -> dict[str, int]:
        return {name: count * len(self._base.encoder.layer) for name, count in _OPERATORS.items()}

    def reset_calls(self) -> None:
        with self._lock:
            self._calls.clear()
            self.fallbacks = 0

    def refresh(self) -> None:
        """Reads the weights again; needed after edits that torch does not record, as parameter.data.copy_(...)."""
        self._qkv.clear()

    def undo(self) -> None:
        """The model is as it was. Does nothing the second time."""
        for hook in self._hooks:
            hook.remove()
        for module in (self._base.encoder, *self._base.encoder.layer):
            vars(module).pop("forward", None)
        self._qkv.clear()

    def __repr__(self) -> str:
        layers = len(self._base.encoder.layer)
        return f"FusedEncoder({layers} layers, a pass calls {self.expected_calls}, so far {self.calls})"

    def _before_model(self, _base: nn.Module, args: tuple, kwargs: dict) -> None:
        self._pass.given = {**dict(zip(self._parameters, args)), **kwargs}

    def _after_model(self, *_args) -> None:
        """Also after an exception."""
        self._pass.given = None

    def _encoder(self, hidden_states: Tensor, *args, **kwargs):
        """In place of BertEncoder.forward."""
        encoder, given = self._base.encoder, self._pass.given
        if given is None:
            raise RuntimeError("apply_fused_encoder: the encoder was called by itself; call the model, or undo()")
        self._pass.given = None
        if torch.is_grad_enabled() and (
            hidden_states.requires_grad or any(parameter.requires_grad for parameter in encoder.parameters())
        ):
            self._count_fallback()
            return type(encoder).forward(encoder, hidden_states, *args, **kwargs)
        checks.check_mode(self._base)
        if self._asked_for("output_attentions", given) or given.get("encoder_hidden_states") is not None:
            raise RuntimeError(
                "apply_fused_encoder: output_attentions or encoder_hidden_states is set, which fused layers do not "
                "have; undo() first"
            )
        kept, lengths = self._tokens(given.get("attention_mask"), hidden_states.shape[:2])
        if kept is None:
            states = self._run(hidden_states, self._mask_of("full", hidden_states.shape[1], hidden_states.device))
        elif self._asked_for("output_hidden_states", given):  # of all columns
            states = self._run(hidden_states, _padded_mask(kept, lengths))
        else:
            rows, at = hidden_states.flatten(0, 1), kept.flatten().nonzero().squeeze(1)
            states = self._run(rows[at][None], self._mask_of("rows", lengths, hidden_states.device))[0]
            states = torch.zeros_like(rows).index_copy_(0, at, states).view(hidden_states.shape)
        from transformers.modeling_outputs import BaseModelOutputWithPastAndCrossAttentions  # noqa: PLC0415 (optional)

        return BaseModelOutputWithPastAndCrossAttentions(last_hidden_state=states)

    def _asked_for(self, name: str, given: dict) -> bool:
        value = given.get(name)
        return bool(getattr(self._base.config, name, False) if value is None else value)

    def _count_fallback(self) -> None:
        with self._lock:
            self.fallbacks += 1
            first = self.fallbacks == 1
        if first:
            warnings.warn(
                "apply_fused_encoder: gradients are on, so the layers of transformers run; for the fused ones use "
                "torch.no_grad()",
                stacklevel=3,
            )

    def _tokens(self, attention_mask: Tensor | None, shape: torch.Size) -> tuple[Tensor | None, list[int]]:
        """bool [B, N]: what is a token (None: all), and how many each sequence has."""
        if attention_mask is None:
            return None, [shape[1]] * shape[0]
        if not isinstance(attention_mask, Tensor) or attention_mask.shape != shape:
            found = list(attention_mask.shape) if isinstance(attention_mask, Tensor) else type(attention_mask).__name__
            raise RuntimeError(
                f"apply_fused_encoder: attention_mask is {found}; expected {list(shape)}, 1 for tokens and 0 for "
                "padding; for other masks undo() first"
            )
        kept = attention_mask != 0
        lengths = kept.sum(1).tolist()
        return (None if sum(lengths) == kept.numel() else kept), lengths

    def _mask_of(self, kind: str, sizes: int | list[int], device: torch.device) -> BlockMask:
        """full: of sequences of one length; rows: of all sequences' tokens, one after the other."""
        stream = torch.cuda.current_stream(device) if device.type == "cuda" else None
        key = (kind, sizes, device, stream)
        if self._pass.known_mask[0] != key:
            if kind == "full":
                mask = BlockMask.from_full(sizes, device=device)
            else:
                mask = BlockMask.from_documents(torch.tensor([sizes]), sum(sizes), device=device)
            self._pass.known_mask = (key, mask)
        return self._pass.known_mask[1]

    def _run(self, states: Tensor, mask: BlockMask) -> Tensor:
        """The layers on states [groups, n, H]: a group for each sequence, or one of all sequences' tokens."""
        self._pass.mask = mask
        try:
            for layer in self._base.encoder.layer:
                states = layer(states)
        finally:
            self._pass.mask = None
        return states

    def _layer(self, layer: nn.Module, hidden_states: Tensor, *args, **kwargs) -> Tensor:
        """In place of BertLayer.forward."""
        mask = self._pass.mask
        if mask is None:
            return type(layer).forward(layer, hidden_states, *args, **kwargs)
        weight, bias = self._qkv_of(layer)
        output, intermediate, last = checks.linears_of(layer)[3:]
        norm1, norm2 = checks.norms_of(layer)
        ops, config = torch.ops.seqfuse, self._base.config
        heads, width = config.num_attention_heads, config.hidden_size
        x = hidden_states.reshape(-1, width)
        qkv = torch.addmm(bias, x, weight.t())
        context = ops.rows_attention_forward(qkv, heads, mask.lists, mask.sizes, (width // heads) ** -0.5)
        attended = _bias_residual_norm(context @ output.weight.t(), output.bias, x, norm1)
        inner = ops.bias_activation_forward(attended @ intermediate.weight.t(), intermediate.bias, config.hidden_act)
        result = _bias_residual_norm(inner @ last.weight.t(), last.bias, attended, norm2)
        with self._lock:
            self._calls.update(_OPERATORS)
        return result.view(hidden_states.shape)

    def _qkv_of(self, layer: nn.Module) -> tuple[Tensor, Tensor]:
        """Weight and bias of query, key and value in one; made again when one of them has changed."""
        parts = checks.linears_of(layer)[:3]
        tensors = [tensor for part in parts for tensor in (part.weight, part.bias)]
        key = [
            (tensor.data_ptr(), 0 if tensor.is_inference() else tensor._version, tensor.dtype, tensor.device)
            for tensor in tensors
        ]
        known = self._qkv.get(layer)
        if known is None or known[0] != key:
            sources = [tensor.detach() for tensor in tensors]  # held, so that no other tensor gets their addresses
            known = (key, torch.cat(sources[::2]), torch.cat(sources[1::2]), sources)
            self._qkv[layer] = known
        return known[1:3]


def _padded_mask(kept: Tensor, lengths: list[int]) -> BlockMask:
    """Of all columns; padding, wherever it is, sees and is seen by nothing."""
    columns = kept.shape[1]
    table = torch.tensor(lengths)
    at_the_end = torch.arange(columns, device=kept.device) < table.to(kept.device)[:, None]
    if torch.equal(kept, at_the_end):
        return BlockMask.from_lengths(table, columns, device=kept.device)
    return BlockMask.from_dense(kept[:, :, None] & kept[:, None, :])


def _bias_residual_norm(x: Tensor, bias: Tensor, residual: Tensor, norm: nn.LayerNorm) -> Tensor:
    return torch.ops.seqfuse.bias_residual_norm_forward(x, bias, residual, norm.weight, norm.bias, norm.eps)


def _hidden_states(base: nn.Module) -> list[Tensor]:
    """Of the tokens of three texts, two of them padded: all layers', then the last of a call without all layers'."""
    table = base.embeddings.word_embeddings.weight
    ids = torch.arange(9, device=table.device).view(3, 3) % table.shape[0]
    attention_mask = torch.tensor([[1, 1, 1], [1, 1, 0], [0, 1, 1]], device=table.device)
    states = base(ids, attention_mask=attention_mask, output_hidden_states=True).hidden_states
    last = base(ids, attention_mask=attention_mask, output_hidden_states=False).last_hidden_state
    return [state[attention_mask == 1] for state in (*states, last)]
