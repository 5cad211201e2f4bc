"""BERT encoders on seqfuse's own engine."""

import os
from collections.abc import Sequence

import torch
from torch import Tensor

from seqfuse import _library


class Encoder:
    """A BERT, as `seqfuse encode` runs it: padding is removed before the embedding.

    A mask, everywhere: "none", or kinds of `seqfuse encode --mask`, such as "sliding:64" or "bigbird:64,64,3"; a list:
    what all of them allow. Each sequence has the mask of its own length.

    Gradients are not computed. An encoder may be used by several threads. Wrong arguments raise ValueError.
    """

    def __init__(self, model: torch.ScriptObject, device: torch.device) -> None:
        """Use from_pretrained."""
        self._model = model
        self.device = device

    @classmethod
    def from_pretrained(
        cls,
        directory: str | os.PathLike,
        *,
        dtype: torch.dtype | str | None = None,
        device: torch.device | str | None = None,
        plan: str | os.PathLike | None = None,
    ) -> "Encoder":
        """The folder of a Hugging Face BERT: config.json, and model.safetensors or its parts with their index.

        dtype: float32 or float64 on a CPU, float16 or bfloat16 on a GPU; None: float32, on a GPU bfloat16 if the file
        is, else float16. device: None: a GPU if torch finds one. plan: a file of `seqfuse tune`; the encoder then takes
        batches of the plan's shape and mask alone. Raises ValueError for a plan of another model, dtype or card, and
        ImportError if the package was built without models.
        """
        _library.load_decoder(_library.load())
        device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        if device.type == "cuda" and device.index is None:
            device = torch.device("cuda", torch.cuda.current_device())
        name = "auto" if dtype is None else str(dtype).removeprefix("torch.")
        model = torch.classes.seqfuse.BertEncoder(os.fspath(directory), name, device)
        if plan is not None:
            model.use_plan(os.fspath(plan))
        return cls(model, device)

    @property
    def hidden_size(self) -> int:
        return self._model.hidden_size()

    @property
    def max_length(self) -> int:
        """Tokens of the longest sequence."""
        return self._model.longest()

    def __call__(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        *,
        mask: str | Sequence[str] = "none",
    ) -> Tensor:
        """The last hidden states [B, N, H], as Hugging Face's BERT gives them; at padding they are 0.

        input_ids, token_type_ids: integers [B, N]. attention_mask: [B, N], 1 for tokens and 0 for padding, anywhere in
        a row; positions are columns, as in Hugging Face's BERT. Tensors may be on any device; the result is on the
        model's. A mask counts tokens without padding. On a GPU, waits for it: for lengths and ids.
        """
        ids = self._integers("input_ids", input_ids, None)
        batch_size, columns = ids.shape
        if columns > self.max_length:
            raise ValueError(f"input_ids is {list(ids.shape)}; this model takes sequences of up to {self.max_length}")
        types = None
        if token_type_ids is not None:
            types = self._integers("token_type_ids", token_type_ids, ids.shape).flatten()
        if attention_mask is None:
            lengths, kept = [columns] * batch_size, None
        else:
            lengths, kept = _lengths(attention_mask, ids.shape)
        ids = ids.flatten()
        positions = torch.arange(columns, device=ids.device).repeat(batch_size)
        if kept is not None:
            ids, positions = ids[kept.to(ids.device)], positions[kept.to(ids.device)]
            types = types if types is None else types[kept.to(types.device)]
        _check_range("input_ids", ids, self._model.vocab_size())
        if types is not None:
            _check_range("token_type_ids", types, self._model.type_vocab_size())
        states = self.encode_rows(
            ids.to(self.device),
            self.batch(lengths, mask),
            types if types is None else types.to(self.device),
            positions.to(self.device),
        )
        if kept is not None:
            padded = states.new_zeros(batch_size * columns, self.hidden_size)
            states = padded.index_copy_(0, kept.to(self.device), states)
        return states.view(batch_size, columns, self.hidden_size)

    def batch(self, lengths: Sequence[int], mask: str | Sequence[str] = "none") -> torch.ScriptObject:
        """Lengths and masks of a batch, for encode_rows, as often as wanted. On a GPU, waits for it."""
        return self._model.batch([int(length) for length in lengths], [mask] if isinstance(mask, str) else list(mask))

    def encode_rows(
        self,
        ids: Tensor,
        batch: torch.ScriptObject,
        token_types: Tensor | None = None,
        positions: Tensor | None = None,
    ) -> Tensor:
        """The last hidden states [T, H] of the T tokens of a batch, one sequence after the other.

        ids, token_types (default: 0), positions (default: from 0 in each sequence): int64 [T] on the model's device;
        their values are not checked. Never waits for a GPU, so that torch.cuda.graph can record it.
        """
        return self._model.states(ids, token_types, positions, batch)

    def __repr__(self) -> str:
        model = self._model
        return (
            f"Encoder({model.num_layers()} layers, {model.hidden_size()} wide, vocabulary {model.vocab_size()}, "
            f"{model.dtype()} on {self.device})"
        )

    @staticmethod
    def _integers(name: str, values: Tensor, shape: torch.Size | None) -> Tensor:
        if not isinstance(values, Tensor) or values.is_floating_point() or values.is_complex():
            kind = values.dtype if isinstance(values, Tensor) else type(values).__name__
            raise ValueError(f"{name} is a {kind}; expected a tensor of integers [B, N]")
        if values.dim() != 2 or (shape is not None and values.shape != shape):
            wanted = "[B, N]" if shape is None else f"{list(shape)}, as input_ids"
            raise ValueError(f"{name} is {list(values.shape)}; expected {wanted}")
        return values.long()


def _lengths(attention_mask: Tensor, shape: torch.Size) -> tuple[list[int], Tensor | None]:
    """The number of tokens of each row, and which elements of the flat mask they are; None: all."""
    if attention_mask.shape != shape:
        raise ValueError(
            f"attention_mask is {list(attention_mask.shape)}; expected {list(shape)}, as input_ids. Which tokens see "
            'which is said by mask="sliding:64" and so on'
        )
    kept = attention_mask != 0
    if bool((kept & (attention_mask != 1)).any()):
        raise ValueError("attention_mask has values other than 0 and 1; expected 1 for tokens and 0 for padding")
    lengths = kept.sum(1).tolist()
    return lengths, None if sum(lengths) == kept.numel() else kept.flatten().nonzero().squeeze(1)


def _check_range(name: str, values: Tensor, size: int) -> None:
    if values.numel() == 0:
        return
    least, most = torch.stack(torch.aminmax(values)).tolist()
    if least < 0 or most >= size:
        raise ValueError(f"{name} has {least if least < 0 else most}; expected 0 to {size - 1}")
