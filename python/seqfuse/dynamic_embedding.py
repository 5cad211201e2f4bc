"""Embedding tables of ids that are not known in advance (docs/dynamic_tables.md)."""

import os
import pathlib
import tempfile

import torch
from torch import Tensor, nn

from seqfuse import _library

Init = tuple[str, float] | tuple[str, float, float] | tuple[str, float, float, float, float]


class DynamicEmbedding(nn.Module):
    """An embedding table whose rows come and go; the optimiser of its rows runs in the backward pass.

    In training mode with gradients enabled, an id that is new gets a row; a table at its capacity first evicts the row
    with the lowest score. The backward pass updates the rows of the batch at once, so they are no parameters: do not
    give them to a torch optimiser. In evaluation mode, or under torch.no_grad(), nothing changes: an id without a row
    has the shared row (shared_row) and is counted (counts()["unknown"]).

    Rows are float32. Every int64 is an id. Wrong arguments raise ValueError. An id that finds no place raises
    RuntimeError: on a GPU in a later call, at the latest in check_failures() or dump().
    """

    def __init__(
        self,
        dim: int,
        capacity: int,
        *,
        optimizer: str = "sgd",
        learning_rate: float = 0.01,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        init: Init = ("uniform", -0.05, 0.05),
        seed: int = 0,
        score: str = "lru",
        evict: bool = True,
        admit_from: int = 1,
        counted_ids: int | None = None,
        initial_capacity: int = 1 << 16,
        evicted_listed: int = 0,
        failure_is_error: bool = True,
        in_order: bool = False,
        name: str = "table",
        device: torch.device | str = "cpu",
    ) -> None:
        """capacity: rows at most; memory for initial_capacity rows is allocated at first, and it doubles as needed.

        optimizer: "sgd", "adam", "adagrad" or "row_wise_adagrad". init: ("constant", value), ("uniform", low, high),
        ("normal", mean, std) or ("truncated_normal", mean, std, lower, upper); a row depends on seed and id alone
        (devices may differ in the last bit).

        score: what is evicted first. "lru": what was not in a batch for longest; "lfu": what was there least often;
        "time_frequency": the former, of these the latter; "frequency_time": the reverse; "step" and "custom": what has
        the lowest step or score given to forward. evict=False: a full table takes no new ids.

        admit_from: an id gets a row when it has been there so often; before, it has the shared row. counted_ids: ids
        without a row whose frequency is known (default: capacity). evicted_listed: evicted ids kept for evicted_keys().
        failure_is_error=False: an id that finds no place has the shared row, and is counted (counts()["failed"]).
        in_order: GPU: the same slots and evictions in every run, which is slower.
        """
        super().__init__()
        _library.load_decoder(_library.load())
        kind, *numbers = init
        wanted = {"constant": 1, "uniform": 2, "normal": 2, "truncated_normal": 4}.get(kind, len(numbers))
        if len(numbers) != wanted:
            raise ValueError(f"init is {init}; expected {wanted} numbers after {kind!r}")
        reals = dict(zip(("a", "b", "lower", "upper"), [*map(float, numbers), 0.0, 0.0, 0.0], strict=False))
        integers = {
            "dim": dim,
            "capacity": capacity,
            "initial_capacity": initial_capacity,
            "seed": seed,
            "evict": int(evict),
            "admit_from": admit_from,
            "counted_ids": counted_ids or 0,
            "list_evicted": evicted_listed,
            "failure_is_error": int(failure_is_error),
            "in_order": int(in_order),
        }
        words = {"name": name, "optimizer": optimizer, "score": score, "init": kind}
        device = torch.device(device)
        if device.type == "cuda" and device.index is None:
            device = torch.device("cuda", torch.cuda.current_device())
        self._rows = torch.classes.seqfuse.DynamicRows(integers, reals, words, device)
        self.dim, self.capacity, self.device = dim, capacity, device
        self.learning_rate, self.betas, self.eps = learning_rate, betas, eps
        self.updates = 0  # backward passes so far: the t of Adam
        self._anchor = torch.empty(0, device=device, requires_grad=True)

    def forward(self, ids: Tensor, *, scores: Tensor | None = None, step: int | None = None) -> Tensor:
        """Rows of ids, int64 of any shape or a jagged nested tensor: [*ids.shape, dim].

        scores: int64, one for each id, exactly if score is "custom"; of equal ids the highest counts. step: exactly if
        score is "step". Both matter in training only.
        """
        if ids.is_nested:
            rows = self.forward(ids.values(), scores=scores, step=step)
            return torch.nested.nested_tensor_from_jagged(rows, ids.offsets())
        if self.training and torch.is_grad_enabled():
            batch = self._rows.fetch(ids, scores, step)
            return _Lookup.apply(self._anchor, self, batch, ids.shape)
        return self._rows.rows(self._rows.find(ids)).view(*ids.shape, self.dim)

    def __len__(self) -> int:
        """Rows; waits for a GPU."""
        return self.counts()["size"]

    def counts(self) -> dict[str, int]:
        """What there is and was; waits for a GPU.

        size, capacity (rows that memory is allocated for), bytes; failed: ids that found no place; evicted: rows;
        early: of these, below the capacity; unknown: ids without a row in evaluation, repeats included.
        """
        return dict(self._rows.counts())

    def check_failures(self) -> None:
        """Raises RuntimeError if ids have found no place since the last error. Waits for a GPU."""
        self._rows.check_failures()

    def shared_row(self) -> Tensor:
        """The row of ids that have none: [dim]."""
        return self._rows.shared_row()

    def erase(self, ids: Tensor) -> None:
        """Removes the rows of ids; those without a row are ignored."""
        self._rows.erase(ids)

    def clear(self) -> None:
        """Starts anew: removes all rows and frequencies, empties the list of evicted ids, sets counts and updates to 0.

        The shared row stays.
        """
        self._rows.clear()
        self.updates = 0

    def evicted_keys(self) -> tuple[Tensor, Tensor, int]:
        """Ids and scores of rows evicted since the last call, and how many more there were than evicted_listed."""
        return self._rows.take_evicted()

    def contents(self) -> dict[str, Tensor]:
        """What load_contents needs to go on with the same bits; copies on the table's device.

        ids [n], rows [n, dim and the optimiser's state], scores [n], shared_row [dim] and more.
        """
        self.check_failures()
        return {**dict(self._rows.contents()), "updates": torch.tensor(self.updates)}

    def load_contents(self, contents: dict[str, Tensor]) -> None:
        """Replaces rows, frequencies and the shared row. Raises ValueError, and changes nothing, if they do not fit."""
        rest = {name: tensor for name, tensor in contents.items() if name != "updates"}
        updates = int(contents.get("updates", 0))
        self._rows.load(rest)
        self.updates = updates

    def dump(self, path: str | os.PathLike) -> None:
        """Writes contents() to a file of torch.save, atomically."""
        path = pathlib.Path(path)
        contents = {name: tensor.cpu() for name, tensor in self.contents().items()}
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
            try:
                torch.save(contents, file)
                file.flush()
                os.fsync(file.fileno())
            except BaseException:
                os.unlink(file.name)
                raise
        os.replace(file.name, path)

    def load(self, path: str | os.PathLike) -> None:
        """Reads a file of dump(), also of a table of another capacity or device. Raises as load_contents does."""
        self.load_contents(torch.load(path, map_location="cpu", weights_only=True))

    def get_extra_state(self) -> dict[str, Tensor]:
        """So that state_dict() has the rows."""
        return {name: tensor.cpu() for name, tensor in self.contents().items()}

    def set_extra_state(self, state: dict[str, Tensor]) -> None:
        """Of load_state_dict()."""
        self.load_contents(state)

    def extra_repr(self) -> str:
        """For print()."""
        return f"dim={self.dim}, capacity={self.capacity}, device={self.device}"


class _Lookup(torch.autograd.Function):
    """Rows of a batch; the backward pass updates them."""

    @staticmethod
    def forward(ctx, _anchor: Tensor, table: DynamicEmbedding, batch: torch.ScriptObject, shape: torch.Size) -> Tensor:
        ctx.table, ctx.batch = table, batch
        return table._rows.rows(batch).view(*shape, table.dim)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, gradient: Tensor) -> tuple[None, None, None, None]:
        table = ctx.table
        table.updates += 1
        table._rows.update(
            ctx.batch,
            gradient.reshape(-1, table.dim),
            table.learning_rate,
            *table.betas,
            table.eps,
            table.updates,
        )
        return None, None, None, None
