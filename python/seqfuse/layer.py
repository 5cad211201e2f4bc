"""An HSTU layer."""

import contextlib

import torch
from torch import Tensor, nn
from torch.nn import functional

from seqfuse.attention import hstu_attention
from seqfuse.norms import layer_norm, layer_norm_gate


class HSTULayer(nn.Module):
    """One HSTU layer over jagged sequences.

    n = layer_norm(x); [u | v | q | k] = silu(n W_uvqk + b_uvqk); o = hstu_attention(q, k, v);
    out = x + dropout(u * layer_norm(o)) W_o + b_o. The norm of o is taken over all heads together.

    Parameters have the names and layouts of checkpoints (docs/checkpoints.md, under "encoder.layers.<n>."):
    input_norm_weight, input_norm_bias [D], uvqk_weight [D, 4 H d], uvqk_bias [4 H d], output_norm_weight,
    output_norm_bias [H d], output_weight [H d, D], output_bias [D], position_bias [2 N - 1], time_bias [buckets].
    The defaults are "hstu", the published layer for training at scale; HSTULayer.research is the layer of the public
    experiments.

    scaling_seqlen: S, the divisor of attention; a constant of the model like its weights, not the longest sequence of a
    batch. alpha: None means head_dim ** -0.5. bias_positions: N, the longest sequence allowed; 0: no position bias.

    recompute_input_layernorm, recompute_input_silu: if the layer runs as one fused operator (see forward), recompute n
    and [u | v | q | k] in the backward pass instead of storing them. This saves 2 D and 8 H d of 4 D + 20 H d bytes per
    token. Otherwise they have no effect.
    """

    def __init__(
        self,
        hidden_size: int,
        num_heads: int,
        head_dim: int,
        *,
        scaling_seqlen: int,
        dropout: float = 0.0,
        norm_epsilon: float = 1e-5,
        alpha: float | None = None,
        causal: bool = True,
        residual: bool = True,
        affine_norms: bool = True,
        uvqk_bias: bool = True,
        output_bias: bool = False,
        uvqk_std: float = 0.0,
        target_group_size: int = 1,
        max_attn_len: int = 0,
        min_full_attn_seq_len: int = 0,
        bias_positions: int = 0,
        bias_time_buckets: int = 0,
        recompute_input_layernorm: bool = False,
        recompute_input_silu: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        """uvqk_std: standard deviation of the initial, normal W_uvqk; 0: xavier_uniform."""
        super().__init__()
        self.num_heads, self.head_dim = num_heads, head_dim
        self.scaling_seqlen = scaling_seqlen
        self.dropout, self.norm_epsilon = dropout, norm_epsilon
        self.alpha = head_dim**-0.5 if alpha is None else alpha
        self.causal, self.residual = causal, residual
        self.uvqk_std = uvqk_std
        self.target_group_size = target_group_size
        self.max_attn_len, self.min_full_attn_seq_len = max_attn_len, min_full_attn_seq_len
        self.recompute_input_layernorm, self.recompute_input_silu = recompute_input_layernorm, recompute_input_silu
        inner = num_heads * head_dim

        def parameter(name: str, present: bool, *sizes: int) -> None:
            weight = nn.Parameter(torch.empty(sizes, device=device, dtype=dtype)) if present else None
            self.register_parameter(name, weight)

        parameter("input_norm_weight", affine_norms, hidden_size)
        parameter("input_norm_bias", affine_norms, hidden_size)
        parameter("output_norm_weight", affine_norms, inner)
        parameter("output_norm_bias", affine_norms, inner)
        parameter("uvqk_weight", True, hidden_size, 4 * inner)
        parameter("uvqk_bias", uvqk_bias, 4 * inner)
        parameter("output_weight", True, inner, hidden_size)
        parameter("output_bias", output_bias, hidden_size)
        parameter("position_bias", bias_positions > 0, 2 * bias_positions - 1)
        parameter("time_bias", bias_time_buckets > 0, bias_time_buckets)
        self.reset_parameters()

    @classmethod
    def research(
        cls,
        hidden_size: int,
        num_heads: int,
        head_dim: int,
        *,
        max_seqlen: int,
        num_time_buckets: int = 128,
        norm_epsilon: float = 1e-6,
        **options,
    ) -> "HSTULayer":
        """The layer of the public experiments: plain norms, relative bias by position and time, S = max_seqlen."""
        return cls(
            hidden_size,
            num_heads,
            head_dim,
            **{
                "scaling_seqlen": max_seqlen,
                "norm_epsilon": norm_epsilon,
                "alpha": 1.0,
                "affine_norms": False,
                "uvqk_bias": False,
                "output_bias": True,
                "uvqk_std": 0.02,
                "bias_positions": max_seqlen,
                "bias_time_buckets": num_time_buckets + 1,
                **options,
            },
        )

    def reset_parameters(self) -> None:
        """Draws initial weights from torch's generator."""
        for name, weight in self.named_parameters(recurse=False):
            if name.endswith("norm_weight"):
                nn.init.ones_(weight)
            elif name in ("position_bias", "time_bias"):
                nn.init.normal_(weight, std=0.02)
            elif name == "uvqk_weight" and self.uvqk_std > 0:
                nn.init.normal_(weight, std=self.uvqk_std)
            elif name in ("uvqk_weight", "output_weight"):
                nn.init.xavier_uniform_(weight)
            else:
                nn.init.zeros_(weight)

    def forward(
        self,
        x: Tensor,
        offsets: Tensor,
        *,
        num_contexts: Tensor | None = None,
        num_targets: Tensor | None = None,
        timestamps: Tensor | None = None,
        request_times: Tensor | None = None,
        max_seqlen: int = 0,
        dropout_seed: int | None = None,
    ) -> Tensor:
        """x [T, D] to [T, D], computed in the dtype of x; weights are converted to it.

        offsets: [B + 1]. num_contexts, num_targets, timestamps, request_times: as for seqfuse.hstu_attention; times
        are used only with bias_time_buckets. max_seqlen: at least the longest sequence; required on CUDA.
        dropout_seed: the seed of the dropout mask in training. None: a seed is drawn from torch's CPU generator; while
        torch.compile traces, a separate operation draws the mask instead.

        For float16 and bfloat16 on CUDA with head_dim up to 256, the layer is one fused operator with its own backward
        pass; gradients of parameters are computed in float32 and then converted to the parameters' dtypes. It is
        composed of several operators if residual=False, for float32 on CUDA under torch.autocast (which then decides
        the dtypes), and under torch.compile with dropout but no dropout_seed.
        """
        if self.time_bias is None:
            timestamps = request_times = None
        attention = {
            "alpha": self.alpha,
            "scaling_seqlen": self.scaling_seqlen,
            "causal": self.causal,
            "target_group_size": self.target_group_size,
            "max_attn_len": self.max_attn_len,
            "min_full_attn_seq_len": self.min_full_attn_seq_len,
            "num_contexts": num_contexts,
            "num_targets": num_targets,
            "timestamps": timestamps,
            "request_times": request_times,
            "max_seqlen": max_seqlen,
        }
        dropout = self.dropout if self.training else 0.0
        if dropout > 0 and dropout_seed is None and not torch.compiler.is_compiling():
            dropout_seed = int(torch.randint(2**62, (), device="cpu"))
        drawn = dropout > 0 and dropout_seed is None
        mixed = x.dtype == torch.float32 and x.device.type == "cuda" and torch.is_autocast_enabled("cuda")
        if not self.residual or drawn or mixed:
            follows = mixed or x.device.type == "meta"  # torch.autocast does not support meta
            with contextlib.nullcontext() if follows else torch.autocast(x.device.type, enabled=False):
                return self._of_operators(x, offsets, attention, dropout, dropout_seed)
        return torch.ops.seqfuse.hstu_layer(
            x,
            self.input_norm_weight,
            self.input_norm_bias,
            self.uvqk_weight,
            self.uvqk_bias,
            self.output_norm_weight,
            self.output_norm_bias,
            self.output_weight,
            self.output_bias,
            offsets,
            self.num_heads,
            self.norm_epsilon,
            dropout,
            dropout_seed or 0,
            recompute_input_layernorm=self.recompute_input_layernorm,
            recompute_input_silu=self.recompute_input_silu,
            position_bias=self.position_bias,
            time_bias=self.time_bias,
            **attention,
        )

    def _of_operators(
        self, x: Tensor, offsets: Tensor, attention: dict, dropout: float, dropout_seed: int | None
    ) -> Tensor:
        inner = self.num_heads * self.head_dim
        normed = layer_norm(x, _like(self.input_norm_weight, x), _like(self.input_norm_bias, x), self.norm_epsilon)
        uvqk = normed @ self.uvqk_weight.to(x.dtype)
        if self.uvqk_bias is not None:
            uvqk = uvqk + self.uvqk_bias.to(uvqk.dtype)
        u, v, q, k = functional.silu(uvqk).split(inner, dim=1)  # views: operators take strided rows
        heads = (-1, self.num_heads, self.head_dim)
        attended = hstu_attention(
            q.view(heads),
            k.view(heads),
            v.view(heads),
            offsets,
            position_bias=_bias_like(self.position_bias, q),
            time_bias=_bias_like(self.time_bias, q),
            **attention,
        ).view(-1, inner)
        drawn = dropout_seed is None
        gated = layer_norm_gate(
            attended,
            u,
            _like(self.output_norm_weight, u),
            _like(self.output_norm_bias, u),
            self.norm_epsilon,
            0.0 if drawn else dropout,
            0 if drawn else dropout_seed,
        )
        if drawn:
            gated = functional.dropout(gated, dropout)
        out = gated @ self.output_weight.to(gated.dtype)
        if self.output_bias is not None:
            out = out + self.output_bias.to(out.dtype)
        return (x + out).to(x.dtype) if self.residual else out.to(x.dtype)

    def extra_repr(self) -> str:
        width = self.uvqk_weight.shape[0]
        return (
            f"{width}, num_heads={self.num_heads}, head_dim={self.head_dim}, scaling_seqlen={self.scaling_seqlen}, "
            f"alpha={self.alpha:.4g}, dropout={self.dropout}"
        )


def _bias_like(bias: Tensor | None, q: Tensor) -> Tensor | None:
    """On a GPU, kernels take a float32 bias with 16-bit tokens."""
    return bias if q.is_cuda else _like(bias, q)


def _like(weight: Tensor | None, x: Tensor) -> Tensor | None:
    return None if weight is None else weight.to(x.dtype)
