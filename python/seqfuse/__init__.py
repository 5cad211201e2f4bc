"""Fused operators of HSTU recommenders for PyTorch, GPT-NeoX language models and BERT encoders.

GPTNeoX runs a language model on seqfuse's engine; apply_fused_kernels puts fused norms into a GPT-NeoX of transformers.
Encoder runs a BERT without padding; apply_fused_encoder puts fused layers into a BERT of transformers.
DynamicEmbedding is a table of ids that are not known in advance. It, GPTNeoX and Encoder need a package built with the
header nlohmann/json.hpp.

masked_attention is softmax attention of [B, H, N, d] under a BlockMask.

spmm, sddmm and gat_attention compute over the edges of a Graph, of features [nodes, heads, d].

All other functions take jagged tensors: the T rows of all sequences one after the other, with offsets, int64 or int32
[B + 1], from 0 to T. They are differentiable, run under torch.compile (fullgraph), and are also torch.ops.seqfuse.*.
CPU tensors: float32 and float64. CUDA tensors, if the library was built with nvcc: float32, float16 and bfloat16.

Wrong arguments raise ValueError and ids outside a table IndexError, with what was given and what was expected. CUDA
operators never wait for the GPU, so there the values of offsets, ids and counts are not checked. Attention is the
exception: its kernels check them, and a wrong value fails a device assertion.
"""

from seqfuse import _library

library_path = _library.load()

from seqfuse.attention import hstu_attention  # noqa: E402 (load the operators first)
from seqfuse.bert.encoder import Encoder  # noqa: E402
from seqfuse.bert.fused_layers import FusedEncoder, apply_fused_encoder  # noqa: E402
from seqfuse.compat.hstu import hstu_attn_varlen_func  # noqa: E402
from seqfuse.dynamic_embedding import DynamicEmbedding, DynamicEmbeddingBag  # noqa: E402
from seqfuse.embedding import embedding_lookup, position_encoding, time_encoding  # noqa: E402
from seqfuse.gpt_neox.fused_layers import FusedKernels, apply_fused_kernels  # noqa: E402
from seqfuse.gpt_neox.model import Generated, GPTNeoX  # noqa: E402
from seqfuse.graph import Graph, gat_attention, sddmm, spmm  # noqa: E402
from seqfuse.jagged import (  # noqa: E402
    dense_to_jagged,
    interleave,
    jagged_concat,
    jagged_repeat,
    jagged_split,
    jagged_to_dense,
    lengths_to_offsets,
)
from seqfuse.layer import HSTULayer  # noqa: E402
from seqfuse.losses import full_softmax_loss, sample_uniform, sampled_softmax_loss  # noqa: E402
from seqfuse.masked_attention import BlockMask, masked_attention  # noqa: E402
from seqfuse.norms import (  # noqa: E402
    add_dual_layer_norm,
    add_layer_norm,
    dropout,
    dual_layer_norm,
    fused_layernorm_residual,
    l2_normalize,
    layer_norm,
    layer_norm_gate,
    layer_norm_residual,
)
from seqfuse.run import RetrievalRun, load_run  # noqa: E402

__all__ = [
    "BlockMask",
    "DynamicEmbedding",
    "DynamicEmbeddingBag",
    "Encoder",
    "FusedEncoder",
    "FusedKernels",
    "GPTNeoX",
    "Generated",
    "Graph",
    "HSTULayer",
    "RetrievalRun",
    "add_dual_layer_norm",
    "add_layer_norm",
    "apply_fused_encoder",
    "apply_fused_kernels",
    "dense_to_jagged",
    "dropout",
    "dual_layer_norm",
    "embedding_lookup",
    "full_softmax_loss",
    "fused_layernorm_residual",
    "gat_attention",
    "hstu_attention",
    "hstu_attn_varlen_func",
    "interleave",
    "jagged_concat",
    "jagged_repeat",
    "jagged_split",
    "jagged_to_dense",
    "l2_normalize",
    "layer_norm",
    "layer_norm_gate",
    "layer_norm_residual",
    "lengths_to_offsets",
    "library_path",
    "load_run",
    "masked_attention",
    "position_encoding",
    "sample_uniform",
    "sampled_softmax_loss",
    "sddmm",
    "spmm",
    "time_encoding",
]
