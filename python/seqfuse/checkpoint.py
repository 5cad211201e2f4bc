"""Reads checkpoints and vocabularies of runs (docs/checkpoints.md)."""

import json
import math
import pathlib
import re
import struct

import torch
from torch import Tensor

_DTYPES = {"F32": torch.float32, "F64": torch.float64, "I64": torch.int64}
_FORMATS = (1, 2)
_UVQK_LAYOUT = "u|v|q|k, heads side by side in each"


def read_safetensors(path: str | pathlib.Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file by name. Raises ValueError naming the file if it is damaged."""
    content = pathlib.Path(path).read_bytes()
    try:
        (size,) = struct.unpack_from("<Q", content)
        header = json.loads(content[8 : 8 + size])
        tensors = {}
        for name, tensor in header.items():
            if name == "__metadata__":
                continue
            dtype, shape = _DTYPES[tensor["dtype"]], tensor["shape"]
            begin, end = (8 + size + offset for offset in tensor["data_offsets"])
            if end > len(content) or end - begin != math.prod(shape) * dtype.itemsize:
                raise ValueError(f"{name} has {end - begin} bytes, its shape is {shape}")
            # frombuffer() does not take empty tensors; bytearray copies, so that tensors are writable.
            values = torch.frombuffer(bytearray(content[begin:end]), dtype=dtype) if end > begin else torch.empty(0)
            tensors[name] = values.to(dtype).reshape(shape)
    except (struct.error, KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"{path}: damaged, or no safetensors file of seqfuse: {error!r}") from error
    return tensors


class Checkpoint:
    """step, spec (the model's description) and weights by name, as in the C++ model."""

    def __init__(self, directory: pathlib.Path) -> None:
        """Raises FileNotFoundError or ValueError, naming the file. Checks sizes of files, not their hashes."""
        file = directory / "state.json"
        description = json.loads(file.read_text())
        if description.get("format") not in _FORMATS:
            raise ValueError(f"{file}: checkpoint format {description.get('format')}, this version reads {_FORMATS}")
        state = description["state"]
        if state.get("uvqk_layout") != _UVQK_LAYOUT:
            raise ValueError(f"{file}: weights are laid out as {state.get('uvqk_layout')!r}, not {_UVQK_LAYOUT!r}")
        self.step: int = description["step"]
        self.spec: dict = state["spec"]
        self.weights: dict[str, Tensor] = {}
        for name, expected in description["files"].items():
            part = directory / name
            if part.stat().st_size != expected["bytes"]:
                raise ValueError(f"{part}: {part.stat().st_size} bytes, but {file} says {expected['bytes']}")
            if name == "dense.safetensors":
                self.weights |= read_safetensors(part)
            elif name.startswith("tables/"):
                self.weights[f"tables.{part.stem}"] = read_table(part)


def read_table(file: pathlib.Path) -> Tensor:
    """The rows of a table in the order of their ids. Raises ValueError if these are not 0, 1, …, each once."""
    tensors = read_safetensors(file)
    rows, ids = tensors[file.stem], tensors.get(f"{file.stem}.ids")
    if ids is None:
        return rows
    if not torch.equal(ids.sort().values, torch.arange(len(rows))):
        raise ValueError(f"{file}: ids are not 0 to {len(rows) - 1}, each once")
    return torch.empty_like(rows).index_copy_(0, ids, rows)


def find_checkpoint(run: pathlib.Path, name: str | None) -> pathlib.Path:
    """The checkpoint of this name, "step_N", or the newest. Raises FileNotFoundError."""
    if not (run / "run.json").is_file():
        raise FileNotFoundError(f"{run} is not a run directory: it has no run.json. Give what `seqfuse train` made")
    steps = {}
    for state in (run / "checkpoints").glob("step_*/state.json"):
        if match := re.fullmatch(r"step_(\d+)", state.parent.name):
            steps[int(match[1])] = state.parent
    if name is None:
        if not steps:
            raise FileNotFoundError(f"{run} has no checkpoint yet: train longer")
        return steps[max(steps)]
    found = run / "checkpoints" / name
    if found not in steps.values():
        have = ", ".join(f"step_{step}" for step in sorted(steps)) or "none"
        raise FileNotFoundError(f"{found} does not exist; the checkpoints of the run are: {have}")
    return found


class Vocabulary:
    """What indices mean: RUN/vocabulary."""

    def __init__(self, run: pathlib.Path) -> None:
        directory = run / "vocabulary"
        file = directory / "vocabulary.json"
        if not file.is_file():
            raise FileNotFoundError(f"{file} is not there: a run of an older version; `seqfuse train --resume` adds it")
        description = json.loads(file.read_text())
        self.hash: str = description["vocabulary_hash"]
        self.items = _ids(directory / description["item_vocabulary"]["file"])
        self.item_index = {raw: index for index, raw in enumerate(self.items, start=1)}
        self.action_kind: str = description["actions"]["kind"]
        self.action_names: list[str] = description["actions"].get("names", [])
        self.context: dict[str, dict[str, int]] = {}  # by feature: raw values to indices
        for feature in description["context"]:
            values = _ids(directory / feature["vocabulary"]["file"])
            self.context[feature["name"]] = {raw: index for index, raw in enumerate(values, start=1)}
        self.typical_gap: int = description["typical_gap"]
        self.typical_action: int = description["typical_action"]


def _ids(file: pathlib.Path) -> list[str]:
    try:
        from pyarrow import ipc  # noqa: PLC0415 (needed here alone)
    except ImportError as error:
        raise ImportError("seqfuse.load_run reads raw ids with pyarrow: pip install pyarrow") from error
    return ipc.open_file(file).read_all()["id"].to_pylist()
