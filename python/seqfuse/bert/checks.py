"""What seqfuse.apply_fused_encoder refuses, and why."""

import importlib
from importlib.metadata import version

import torch
from torch import nn

NAME = "apply_fused_encoder"
DTYPES = {"cpu": (torch.float32, torch.float64), "cuda": (torch.float16, torch.bfloat16)}
ACTIVATIONS = ("gelu", "gelu_new", "relu")


def base_of(model: nn.Module) -> nn.Module:
    """The BertModel of a model: itself, or model.bert.

    Raises ImportError without transformers, TypeError for anything but its BERT classes.
    """
    try:
        theirs = importlib.import_module("transformers.models.bert.modeling_bert")
    except ImportError as error:
        raise ImportError(
            f"{NAME}: transformers is not installed or has no BERT ({error}); pip install transformers"
        ) from error
    kind = f"{type(model).__module__}.{type(model).__name__}"
    if isinstance(model, torch._dynamo.OptimizedModule):
        raise TypeError(f"{NAME}: the model is compiled; give the model itself, fused layers do without compiling")
    if not isinstance(model, theirs.BertPreTrainedModel):
        raise TypeError(
            f"{NAME}: the model is a {kind}; expected a BertModel, BertForMaskedLM or another BERT class of "
            "transformers (give the model itself, without a wrapper such as PEFT's or DataParallel)"
        )
    base = model if isinstance(model, theirs.BertModel) else getattr(model, "bert", None)
    if type(base) is not theirs.BertModel:
        raise TypeError(f"{NAME}: the {kind} has no BertModel of its own; found {type(base).__name__}")
    return base


def check_config(base: nn.Module) -> None:
    """Raises ValueError for what the fused layers do not compute."""
    config = base.config
    _check(config.hidden_act in ACTIVATIONS, f"hidden_act is {config.hidden_act!r}; expected {', '.join(ACTIVATIONS)}")
    positions = getattr(config, "position_embedding_type", None) or "absolute"
    _check(positions == "absolute", f"position_embedding_type is {positions!r}; expected 'absolute'")
    for flag in ("is_decoder", "add_cross_attention"):
        _check(not getattr(config, flag, False), f"{flag} is true; expected an encoder")


def check_layout(base: nn.Module) -> None:
    """The modules that the fused layers use. Raises ValueError for another layout, as of another transformers."""
    layers = getattr(getattr(base, "encoder", None), "layer", None)
    _check(layers is not None and len(layers) > 0, f"this BertModel has no encoder.layer ({transformers_version()})")
    for module in (base.encoder, *layers):
        _check("forward" not in vars(module), f"{type(module).__name__}.forward is replaced already; undo that first")
    for index, layer in enumerate(layers):
        try:
            linears, norms = linears_of(layer), norms_of(layer)
        except AttributeError as error:
            raise ValueError(f"{NAME}: encoder.layer.{index}: {error} ({transformers_version()})") from error
        for linear in linears:
            _check(
                type(linear) is nn.Linear and linear.bias is not None,
                f"encoder.layer.{index} has a {type(linear).__name__}; expected torch.nn.Linear with a bias "
                "(quantised models and adapters are not supported)",
            )
        for norm in norms:
            _check(type(norm) is nn.LayerNorm, f"encoder.layer.{index} has a {type(norm).__name__}; expected LayerNorm")
        for name, module in layer.named_modules():
            hooks = [*module._forward_hooks.values(), *module._forward_pre_hooks.values()]
            # transformers has hooks of its own, for output_hidden_states and the like.
            theirs = all((getattr(hook, "__module__", None) or "").startswith("transformers.") for hook in hooks)
            _check(
                not name or theirs,
                f"encoder.layer.{index}.{name} has hooks, which a fused layer would not call; remove them first",
            )


def check_placement(base: nn.Module) -> None:
    """Devices and dtypes. Raises ValueError."""
    parameters = [parameter for layer in base.encoder.layer for parameter in layer.parameters()]
    devices = sorted({str(parameter.device) for parameter in parameters})
    _check(len(devices) == 1, f"the layers are on {', '.join(devices)}; expected one device")
    device = parameters[0].device.type
    _check(device in DTYPES, f"the model is on {devices[0]}; expected a CPU or an NVIDIA GPU (model.to(...))")
    dtypes = {parameter.dtype for parameter in parameters}
    _check(
        len(dtypes) == 1 and dtypes <= set(DTYPES[device]),
        f"the layers are {', '.join(sorted(map(_short, dtypes)))} on a {device}, where the fused ones take "
        f"{' or '.join(map(_short, DTYPES[device]))}; convert the model (model.to(dtype)) or move it",
    )
    head_dim = base.config.hidden_size // base.config.num_attention_heads
    _check(
        device == "cpu" or (head_dim % 8 == 0 and head_dim <= 128),
        f"the heads have {head_dim} dimensions; on a GPU expected a multiple of 8 up to 128",
    )


def check_mode(base: nn.Module) -> None:
    """When a fused pass begins. Raises RuntimeError."""
    rates = (module.p for module in base.encoder.modules() if isinstance(module, nn.Dropout))
    if base.training and any(rates):
        raise RuntimeError(
            f"{NAME}: the model is in training mode and has dropout, which fused layers leave out; call model.eval()"
        )
    if torch.is_autocast_enabled(next(base.encoder.parameters()).device.type):
        raise RuntimeError(
            f"{NAME}: torch.autocast is on; convert the model instead (model.to(dtype)), or undo() the fused layers"
        )
    if torch.compiler.is_compiling():
        raise RuntimeError(f"{NAME}: the model is being compiled; fused layers do without: call it uncompiled")


def linears_of(layer: nn.Module) -> list[nn.Module]:
    """query, key, value, attention's output, intermediate, output."""
    attention = layer.attention
    inner = attention.self
    return [inner.query, inner.key, inner.value, attention.output.dense, layer.intermediate.dense, layer.output.dense]


def norms_of(layer: nn.Module) -> list[nn.Module]:
    return [layer.attention.output.LayerNorm, layer.output.LayerNorm]


def transformers_version() -> str:
    return f"transformers {version('transformers')}; tested with 5.24"


def _check(holds: bool, message: str) -> None:
    if not holds:
        raise ValueError(f"{NAME}: {message}")


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
