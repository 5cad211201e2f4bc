"""GPT-NeoX language models on seqfuse's own engine."""

import math
import numbers
import os
import pathlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from seqfuse import _library
from seqfuse.gpt_neox.texts import TextEnd, Texts
from seqfuse.gpt_neox.watched import run_watched

Prompt = str | Sequence[int] | Tensor


@dataclass
class Generated:
    """One continued prompt.

    ids: the new tokens, without the prompt and without the end token. text: the same as text, up to a stop string; None
    without tokenizer.json or the package `tokenizers`. finish: "length", "eos", "stop" (a stop string, or on_token)
    or "cache_full".
    """

    ids: list[int]
    text: str | None
    finish: str


class GPTNeoX:
    """A GPT-NeoX (Pythia and others), as `seqfuse generate` and `seqfuse perplexity` run it.

    A prompt is text, which needs tokenizer.json and the package `tokenizers`, or the ids of its tokens: a list, or an
    integer tensor [n].

    Which tokens are seen is said by cache, start, recent, prune_every and cache_size (docs/decode.md):
    - "full": all; a text may be cache_size tokens long (default: what the model was trained on)
    - "window": the `recent` newest before a token (default: what the model was trained on)
    - "streaming": the `start` first as well (StreamingLLM); "recompute": the same, computed anew for each token

    Wrong arguments and damaged files raise ValueError; too little memory raises RuntimeError. Ctrl-C ends what runs
    after its current token with KeyboardInterrupt. A model may be used by several threads.
    """

    def __init__(self, model: torch.ScriptObject, texts: Texts, device: torch.device) -> None:
        """Use from_pretrained."""
        self._model, self._texts = model, texts
        self.device = device

    @classmethod
    def from_pretrained(
        cls,
        directory: str | os.PathLike,
        *,
        dtype: torch.dtype | str | None = None,
        device: torch.device | str | None = None,
    ) -> "GPTNeoX":
        """The folder of a Hugging Face GPT-NeoX: config.json, and model.safetensors or its parts with their index.

        dtype: float32, float16, bfloat16 or float64; None: float32 on a CPU, that of the file on a GPU. device: None: a
        GPU if torch finds one. Raises ImportError if the package was built without language models.
        """
        _library.load_decoder(_library.load())
        device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        name = "auto" if dtype is None else str(dtype).removeprefix("torch.")
        model = torch.classes.seqfuse.LanguageModel(os.fspath(directory), name, device)
        return cls(model, Texts(pathlib.Path(directory)), device)

    @property
    def vocab_size(self) -> int:
        return self._model.vocab_size()

    @property
    def eos_ids(self) -> list[int]:
        """Tokens that end a text, by the model's files; may be empty."""
        return self._model.eos_ids()

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        max_new_tokens: int = 128,
        *,
        temperature: float | None = None,
        top_k: int = 0,
        top_p: float = 1.0,
        repetition_penalty: float = 1.0,
        seed: int = 0,
        stop: str | Sequence[str] = (),
        eos: int | Sequence[int] | None = None,
        cache: str = "full",
        start: int = 4,
        recent: int | None = None,
        prune_every: int = 1,
        cache_size: int | None = None,
        batch_size: int = 16,
        on_token: Callable[[int, int], bool | None] | None = None,
    ) -> Generated | list[Generated]:
        """Continues a prompt, or several: then a list of results in their order.

        temperature: 0: the best token, of equal ones the lowest id; None: 0, or 1 with top_k or top_p. top_k, top_p:
        draw only from the k best, or from the fewest best whose probabilities reach p. repetition_penalty: divides
        logits of tokens that came before. A draw depends on the seed, the number of the prompt and of the token alone.
        stop: texts that end a text. eos: ids that end a text; None: those of the model; []: none. batch_size: prompts
        that are computed together. on_token: called with (number of the prompt, id) as tokens come; False: that text
        ends with this token.
        """
        single = isinstance(prompts, str) or _is_ids(prompts)
        all_ids = [self._ids(prompt) for prompt in ([prompts] if single else prompts)]
        if temperature is None:
            temperature = 1.0 if top_k > 0 or top_p < 1 else 0.0
        eos_ids = self.eos_ids if eos is None else [eos] if isinstance(eos, int) else list(eos)
        sampling = (temperature, top_k, top_p, repetition_penalty, seed)
        longest = max(map(len, all_ids), default=0) + max_new_tokens
        rule = self._rule(cache, start, recent, prune_every, cache_size, longest, all_ids)
        ends = [TextEnd([stop] if isinstance(stop, str) else stop, self._texts) for _ in all_ids]
        if batch_size < 1:
            raise ValueError(f"batch_size is {batch_size}; expected 1 or more")

        def goes_on(text: int, token: int) -> bool:
            return ends[text].add(token, on_token is None or on_token(text, token) is not False)

        results = []
        for begin in range(0, len(all_ids), batch_size):
            batch = all_ids[begin : begin + batch_size]
            found = run_watched(
                lambda watch, batch=batch, begin=begin: self._model.generate(
                    rule, batch, max_new_tokens, eos_ids, *sampling, begin, watch
                ),
                goes_on if stop or on_token else None,
            )
            results += [self._generated(*one, ends[begin + row]) for row, one in enumerate(zip(*found))]
        return results[0] if single else results

    def token_losses(
        self,
        text: Prompt,
        *,
        cache: str = "full",
        start: int = 4,
        recent: int | None = None,
        prune_every: int = 1,
        cache_size: int | None = None,
        tokens_per_pass: int = 1,
    ) -> Tensor:
        """-log of the probability of each token but the first: float64 [n - 1], on the CPU.

        Through the path that generates. tokens_per_pass: 1, as decoding does; more give the same to rounding, faster.
        """
        ids = self._ids(text)
        seen = max(len(ids) - 1, 1)  # the last token is predicted, not read
        rule = self._rule(cache, start, recent, prune_every, cache_size, seen, [ids[:-1]])
        return run_watched(lambda watch: self._model.losses(rule, ids, tokens_per_pass, watch))

    def perplexity(self, text: Prompt, **options) -> float:
        """exp of the mean of token_losses(text, **options)."""
        return math.exp(float(self.token_losses(text, **options).mean()))

    def hidden_states(self, text: Prompt) -> list[Tensor]:
        """What goes into each layer, then the final norm's result, as `output_hidden_states` of transformers has it.

        [tokens, hidden_size] each, of one pass over the text, as a prompt is read. On a GPU in 16 bits the operators,
        their order and the angles are those of transformers, for texts of up to 4096 tokens.
        """
        return self._model.hidden_states(self._ids(text))

    def __repr__(self) -> str:
        model = self._model
        return (
            f"GPTNeoX({model.num_layers()} layers, {model.hidden_size()} wide, vocabulary {model.vocab_size()}, "
            f"{model.dtype()} on {self.device})"
        )

    def _ids(self, prompt: Prompt) -> list[int]:
        if isinstance(prompt, str):
            return self._texts.encode(prompt)
        ids = prompt.tolist() if isinstance(prompt, Tensor) else list(prompt)
        for id_ in ids:
            if not isinstance(id_, numbers.Integral):
                raise ValueError(f"a prompt has {id_!r}; expected text, or whole numbers, such as [5, 34, 63]")
        return [int(id_) for id_ in ids]

    def _rule(
        self,
        cache: str,
        start: int,
        recent: int | None,
        prune_every: int,
        cache_size: int | None,
        longest: int,
        texts: list[list[int]],
    ) -> torch.ScriptObject:
        trained = self._model.trained_length()
        size = trained if cache_size is None else cache_size
        for number, ids in enumerate(texts, 1) if cache == "full" else ():
            if len(ids) > size:
                raise ValueError(
                    f"text {number} has {len(ids)} tokens, the full cache holds {size}: cache_size={longest} makes "
                    'room, cache="streaming" takes texts of any length'
                )
        first = 0 if cache == "window" else start
        if recent is None:
            recent = max(trained - first - prune_every, 1)
        return torch.classes.seqfuse.CacheRule(cache, first, recent, prune_every, min(longest, size))

    def _generated(self, ids: list[int], finish: str, end: TextEnd) -> Generated:
        if end.ended:  # the engine may be some tokens ahead
            ids, finish = end.ids, "stop"
        text = end.cut(self._texts.decode(ids)) if self._texts.there else None
        return Generated(ids, text, finish)


def _is_ids(prompts: Sequence) -> bool:
    if isinstance(prompts, Tensor):
        return prompts.dim() < 2
    return len(prompts) > 0 and isinstance(prompts[0], numbers.Integral)
