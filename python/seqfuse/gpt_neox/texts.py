"""Texts to ids and back, by tokenizer.json and the package `tokenizers`; stop strings."""

import pathlib
from collections.abc import Sequence


class Texts:
    """The tokenizer of a model's folder, opened when it is first needed."""

    def __init__(self, directory: pathlib.Path) -> None:
        self._file = directory / "tokenizer.json"
        self._tokenizer = None

    @property
    def there(self) -> bool:
        """Whether ids can be turned into text."""
        try:
            self.tokenizer  # noqa: B018
        except (ImportError, ValueError):
            return False
        return True

    @property
    def tokenizer(self):
        """Raises ImportError without the package `tokenizers`, ValueError without tokenizer.json."""
        if self._tokenizer is None:
            try:
                from tokenizers import Tokenizer  # noqa: PLC0415 (optional)
            except ImportError as error:
                raise ImportError(
                    "seqfuse.GPTNeoX: text needs the package `tokenizers` (pip install tokenizers); or give the ids of "
                    "tokens"
                ) from error
            if not self._file.is_file():
                raise ValueError(
                    f"seqfuse.GPTNeoX: text needs {self._file}, which is not there; give the ids of tokens"
                )
            self._tokenizer = Tokenizer.from_file(str(self._file))
        return self._tokenizer

    def encode(self, text: str) -> list[int]:
        return self.tokenizer.encode(text).ids

    def decode(self, ids: Sequence[int]) -> str:
        return self.tokenizer.decode(list(ids))


class TextEnd:
    """Follows one text token by token, until a stop string is there."""

    def __init__(self, stop: Sequence[str], texts: Texts) -> None:
        self._stop, self._texts = list(stop), texts
        # Each token of a stop string has a byte of it or more.
        self._tokens = max((len(text.encode()) for text in stop), default=0)
        self.ids: list[int] = []
        self.ended = False

    def add(self, token: int, goes_on: bool) -> bool:
        """Whether the text goes on after this token: goes_on, and no stop string has come."""
        self.ids.append(token)
        if self._stop and goes_on:
            tail = self._texts.decode(self.ids[-self._tokens :])
            goes_on = not any(text in tail for text in self._stop)
        self.ended = not goes_on
        return goes_on

    def cut(self, text: str) -> str:
        """The text up to its first stop string."""
        return text[: min((text.find(stop) for stop in self._stop if stop in text), default=len(text))]
