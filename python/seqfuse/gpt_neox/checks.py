"""What seqfuse.apply_fused_kernels refuses, and why."""

import importlib
from importlib.metadata import version

import torch
from torch import nn

DTYPES = {"cpu": (torch.float32, torch.float64), "cuda": (torch.float32, torch.float16, torch.bfloat16)}
PARTS_OF_A_LAYER = ("input_layernorm", "post_attention_layernorm", "attention", "mlp", "use_parallel_residual")


def base_of(model: nn.Module) -> nn.Module:
    """The GPTNeoXModel of a model: itself, or model.gpt_neox.

    Raises ImportError without transformers, TypeError for anything but its GPT-NeoX classes.
    """
    try:
        theirs = importlib.import_module("transformers.models.gpt_neox.modeling_gpt_neox")
    except ImportError as error:
        raise ImportError(
            f"apply_fused_kernels: transformers is not installed or has no GPT-NeoX ({error}); pip install transformers"
        ) from error
    kind = f"{type(model).__module__}.{type(model).__name__}"
    if isinstance(model, torch._dynamo.OptimizedModule):
        raise TypeError("apply_fused_kernels: the model is compiled; apply first, then call torch.compile(model)")
    if not isinstance(model, theirs.GPTNeoXPreTrainedModel):
        raise TypeError(
            f"apply_fused_kernels: the model is a {kind}; expected a GPTNeoXForCausalLM, a GPTNeoXModel or another "
            "GPT-NeoX class of transformers (give the model itself, without a wrapper such as PEFT's or DataParallel)"
        )
    base = model if isinstance(model, theirs.GPTNeoXModel) else getattr(model, "gpt_neox", None)
    if type(base) is not theirs.GPTNeoXModel:
        raise TypeError(f"apply_fused_kernels: the {kind} has no GPTNeoXModel of its own; found {type(base).__name__}")
    return base


def check_layout(base: nn.Module) -> None:
    """The modules that the fused layers use. Raises ValueError for another layout, as of another transformers."""
    for part in ("layers", "final_layer_norm"):
        _check(hasattr(base, part), f"this GPTNeoXModel has no {part} ({transformers_version()})")
    _check(len(base.layers) > 0, "the model has no layers")
    for name, layer in named_layers(base):
        missing = [part for part in PARTS_OF_A_LAYER if not hasattr(layer, part)]
        _check(not missing, f"{name} has no {', '.join(missing)} ({transformers_version()})")
        _check("forward" not in vars(layer), f"{name}.forward is replaced already; undo that first")
    for name, norm in named_norms(base):
        _check(type(norm) is nn.LayerNorm, f"{name} is a {type(norm).__name__}; expected torch.nn.LayerNorm")
        _check("forward" not in vars(norm), f"{name}.forward is replaced already; undo that first")
        hooks = (norm._forward_hooks, norm._forward_pre_hooks, norm._backward_hooks, norm._backward_pre_hooks)
        _check(not any(hooks), f"{name} has hooks, which a fused norm would not call; remove them first")
    for name, layer in named_layers(base):
        pair = layer.input_layernorm, layer.post_attention_layernorm
        _check(
            not layer.use_parallel_residual or pair[0].eps == pair[1].eps,
            f"the norms of {name} have eps {pair[0].eps} and {pair[1].eps}; a dual layer norm has one",
        )


def check_placement(model: nn.Module, base: nn.Module) -> None:
    """Devices, dtypes, offloading, quantisation. Raises ValueError."""
    quantised = getattr(model, "hf_quantizer", None) or getattr(model.config, "quantization_config", None)
    _check(not quantised, "the model is quantised; load it without quantization_config")
    for name, module in model.named_modules():
        _check(
            not hasattr(module, "_hf_hook"),
            f"{name or 'the model'} is managed by accelerate (device_map: offloaded, or on several devices); load the "
            "whole model on one device",
        )
    weights = [weight for _, norm in named_norms(base) for weight in (norm.weight, norm.bias) if weight is not None]
    devices = sorted({str(weight.device) for weight in weights})
    _check(len(devices) == 1, f"the layers are on {', '.join(devices)}; expected one device")
    device = weights[0].device.type
    _check(device in DTYPES, f"the model is on {devices[0]}; expected a CPU or an NVIDIA GPU (model.to(...))")
    wanted = DTYPES[device]
    for dtype in {parameter.dtype for parameter in model.parameters()}:
        _check(
            dtype in wanted,
            f"the model is {_short(dtype)} on a {device}, where the fused norms take "
            f"{', '.join(map(_short, wanted))}; convert it (model.to(dtype)) or move it",
        )
    dtypes = {weight.dtype for weight in weights} | {base.embed_in.weight.dtype}
    _check(
        len(dtypes) == 1,
        f"norms and embedding are {', '.join(sorted(map(_short, dtypes)))}; expected one dtype for all",
    )


def check_mode(module: nn.Module, has_dropout: bool) -> None:
    """Of the model before it is patched, and of each layer when it runs. Raises RuntimeError."""
    if not module.training:
        return
    if has_dropout:
        raise RuntimeError(
            "apply_fused_kernels: the model is in training mode and has dropout, which fused layers leave out; call "
            "model.eval(), or set the dropouts of its config to 0"
        )
    if any(getattr(part, "gradient_checkpointing", False) for part in module.modules()):
        raise RuntimeError(
            "apply_fused_kernels: gradient checkpointing is on, which fused layers do not take part in; call "
            "model.gradient_checkpointing_disable() or model.eval()"
        )


def transformers_version() -> str:
    return f"transformers {version('transformers')}; tested with 4.57 and 5.24"


def named_layers(base: nn.Module) -> list[tuple[str, nn.Module]]:
    return [(f"layers.{index}", layer) for index, layer in enumerate(base.layers)]


def named_norms(base: nn.Module) -> list[tuple[str, nn.Module]]:
    inner = [
        (f"{name}.{norm}", getattr(layer, norm))
        for name, layer in named_layers(base)
        for norm in ("input_layernorm", "post_attention_layernorm")
    ]
    return [*inner, ("final_layer_norm", base.final_layer_norm)]


def _check(holds: bool, message: str) -> None:
    if not holds:
        raise ValueError(f"apply_fused_kernels: {message}")


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
