"""Embedding tables of ids that are not known in advance (docs/dynamic_tables.md)."""

import os
import pathlib
import tempfile
import threading
from collections.abc import Iterable

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
        device_rows: int | None = None,
        cached: bool = False,
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

        device_rows: GPU: rows in its memory; the others are in pinned memory of the host (default: all on the GPU).
        cached: all rows are in the host's memory, and device_rows of those in use also in the GPU's.
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
            "device_rows": (1 << 63) - 1 if device_rows is None else device_rows,
            "cached": int(cached),
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
        self._base: int | None = None  # fetches until the last dump, of which the next increment is the continuation
        self._snapshot: BackgroundDump | None = None  # that advance() copies for
        self._writing: BackgroundDump | None = None  # whose file may not be there yet
        self._gone: list[Tensor] = []  # ids erased and evicted since, on the CPU
        self._lost = 0  # evicted ids since that were not listed
        self._listed = evicted_listed
        self._evicted: list[tuple[Tensor, Tensor]] = []  # for evicted_keys(): taken out of the table already
        self._evicted_more = 0

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
        return self._rows.look_up(ids).view(*ids.shape, self.dim)

    def prefetch(self, ids: Tensor) -> None:
        """Brings the rows of the next batch into the cache (cached=True) while the GPU goes on with other work.

        Call it between forward and backward. ids: int64 of any shape, on the table's device; repeats are allowed,
        ids without a row get none. Rows, evictions and results are the same as without this call.
        """
        self._rows.prefetch(ids)

    def _update(self, batch: torch.ScriptObject, gradients: Tensor) -> None:
        self.updates += 1
        self._rows.update(batch, gradients, self.learning_rate, *self.betas, self.eps, self.updates)

    def __len__(self) -> int:
        """Rows; waits for a GPU."""
        return self.counts()["size"]

    def counts(self) -> dict[str, int]:
        """What there is and was; waits for a GPU.

        size, capacity (rows that memory is allocated for), bytes, host_bytes (pinned); failed: ids that found no place;
        evicted: rows; early: of these, below the capacity; unknown: ids without a row in evaluation, repeats included.
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
        if self._base is not None:
            self._gone.append(ids.detach().flatten().cpu())

    def clear(self) -> None:
        """Starts anew: removes all rows and frequencies, empties the list of evicted ids, sets counts and updates to 0.

        The shared row stays. The next dump is a whole one.
        """
        self._rows.clear()
        self.updates = 0
        self._base, self._evicted, self._evicted_more = None, [], 0

    def evicted_keys(self) -> tuple[Tensor, Tensor, int]:
        """Ids and scores of rows evicted since the last call, and how many more there were than evicted_listed."""
        self._take_evicted()
        none = torch.empty(0, dtype=torch.int64, device=self.device)
        ids = torch.cat([none, *(ids for ids, _ in self._evicted)])
        scores = torch.cat([none, *(scores for _, scores in self._evicted)])
        more = self._evicted_more
        self._evicted, self._evicted_more = [], 0
        return ids, scores, more

    def _take_evicted(self) -> None:
        """Takes evicted ids out of the table's list: for evicted_keys(), and for the next increment."""
        ids, scores, more = self._rows.take_evicted()
        room = max(0, self._listed - sum(len(kept) for kept, _ in self._evicted))
        if len(ids) and room:
            self._evicted.append((ids[:room].clone(), scores[:room].clone()))
        self._evicted_more += more + max(0, len(ids) - room)
        if self._base is not None:
            self._gone.append(ids.cpu())
            self._lost += more

    def contents(self) -> dict[str, Tensor]:
        """What load_contents needs to go on with the same bits; copies on the CPU.

        ids [n], rows [n, dim and the optimiser's state], scores [n], shared_row [dim] and more.
        """
        return self._contents(0)

    def _contents(self, since: int) -> dict[str, Tensor]:
        self.check_failures()
        return {**dict(self._rows.contents(since)), "updates": torch.tensor(self.updates)}

    def load_contents(self, contents: dict[str, Tensor]) -> None:
        """Replaces rows, frequencies and the shared row. Raises ValueError, and changes nothing, if they do not fit."""
        rest = {name: tensor for name, tensor in contents.items() if name != "updates"}
        updates = int(contents.get("updates", 0))
        self._rows.load(rest)
        self.updates = updates
        self._base, self._evicted, self._evicted_more = None, [], 0

    def dump(self, path: str | os.PathLike) -> None:
        """Writes contents() to a file of torch.save, atomically: a process that dies leaves the file of before."""
        self._end_writing()
        contents = self.contents()
        _save(path, contents)
        self._start_increment(contents)

    def start_dump(self, path: str | os.PathLike, *, slots_at_once: int = 1 << 16) -> "BackgroundDump":
        """A dump that is copied in pieces between steps and written by a thread, while training goes on.

        Call it between steps. The host keeps a copy of all rows until the file is written.
        """
        return BackgroundDump(self, path, slots_at_once)

    def dump_increment(self, path: str | os.PathLike) -> None:
        """Writes what changed since the last dump, increment or load: rows that were in batches, ids that have gone.

        Call it between steps, when each forward pass has had its backward pass. Frequencies (admit_from) are written
        whole. Waits for the file of a background dump. Raises what went wrong with it, and ValueError if there was no
        dump or load, and if more ids were evicted than evicted_listed.
        """
        self._end_writing()
        if self._base is None:
            raise ValueError("an increment continues a dump: call dump() or load() first")
        self._take_evicted()
        if self._lost:
            raise ValueError(
                f"{self._lost} ids were evicted that were not listed: raise evicted_listed, or write increments "
                "more often; now dump() the whole table"
            )
        contents = self._contents(self._base)
        gone = torch.cat([torch.empty(0, dtype=torch.int64), *self._gone]).unique()
        contents["gone"] = gone[~self._rows.contains(gone.to(self.device)).cpu()]
        contents["base"] = torch.tensor(self._base)
        _save(path, contents)
        self._start_increment(contents)

    def load(self, path: str | os.PathLike, increments: Iterable[str | os.PathLike] = ()) -> None:
        """Reads a file of dump(), also of a table of another capacity or device, and applies its increments in order.

        Raises as load_contents does, and ValueError if an increment does not continue what is before it.
        """
        contents = torch.load(path, map_location="cpu", weights_only=True)
        for increment in increments:
            contents = _continued(contents, torch.load(increment, map_location="cpu", weights_only=True), increment)
        self.load_contents(contents)
        self._start_increment(contents)

    def _end_writing(self) -> None:
        """Waits for the file of a background dump. If it was not written, no increment continues it, and raises why."""
        writing, self._writing = self._writing, None
        if writing is not None:
            try:
                writing.wait()
            except BaseException:
                self._base = None
                raise

    def _start_increment(self, contents: dict[str, Tensor]) -> None:
        self._take_evicted()
        self._base, self._gone, self._lost = int(contents["table"][1]), [], 0

    def get_extra_state(self) -> dict[str, Tensor]:
        """So that state_dict() has the rows."""
        return {name: tensor.cpu() for name, tensor in self.contents().items()}

    def set_extra_state(self, state: dict[str, Tensor]) -> None:
        """Of load_state_dict()."""
        self.load_contents(state)

    def extra_repr(self) -> str:
        """For print()."""
        return f"dim={self.dim}, capacity={self.capacity}, device={self.device}"


class BackgroundDump:
    """A dump of a DynamicEmbedding that training hardly waits for.

        dump = table.start_dump("items.pt")
        for ids in batches:
            loss(table(ids))
            dump.advance()          # copies the rows of some slots while the GPU computes
            loss.backward()
            if dump.copied:
                dump.finish()       # the file has the table as it is now, after this step
                break
        ...                         # more steps, while the file is written
        dump.wait()

    Rows of batches since the start are copied again by finish(). A table that has grown since is copied whole then.
    """

    def __init__(self, table: DynamicEmbedding, path: str | os.PathLike, slots_at_once: int) -> None:
        if slots_at_once < 1:
            raise ValueError(f"slots_at_once is {slots_at_once}; expected at least 1")
        table._rows.start_snapshot()
        table._snapshot = self
        self._table, self._path, self._slots = table, path, slots_at_once
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self.copied = False

    def advance(self) -> bool:
        """Copies the rows of the next slots. False, and copied is True, when none are left."""
        if self._thread is None and not self.copied:
            self._check_active()
            self.copied = not self._table._rows.copy_snapshot(self._slots)
        return not self.copied

    def finish(self) -> None:
        """Call it between steps: the table of now is written, by a thread. The next increment continues it.

        Copies what advance() has not; waits for a GPU. Raises RuntimeError as check_failures() does.
        """
        if self._thread is not None:
            raise ValueError("this dump is finished: start another one")
        self._check_active()
        table = self._table
        table._end_writing()
        contents = {**dict(table._rows.finish_snapshot()), "updates": torch.tensor(table.updates)}
        table._start_increment(contents)
        self.copied = True
        self._thread = threading.Thread(target=self._write, args=(contents,))
        self._thread.start()
        table._snapshot, table._writing = None, self

    def _check_active(self) -> None:
        if self._table._snapshot is not self:
            raise ValueError("another start_dump() of this table has taken the place of this one")

    def _write(self, contents: dict[str, Tensor]) -> None:
        try:
            by_slot, late, late_rows = (contents.pop(name) for name in ("by_slot", "late", "late_rows"))
            all_late = len(late) == len(contents["ids"])
            contents["rows"] = (
                late_rows if all_late else by_slot.index_select(0, contents["slots"]).index_copy_(0, late, late_rows)
            )
            del by_slot
            _save(self._path, contents)
        except BaseException as error:
            self._error = error

    def writing(self) -> bool:
        """Whether the file is still being written."""
        return self._thread is not None and self._thread.is_alive()

    def wait(self) -> None:
        """Waits until the file is written. Raises what went wrong, such as OSError on a full disk."""
        if self._thread is None:
            raise ValueError("this dump is not finished: call finish() first")
        self._thread.join()
        if self._error is not None:
            raise self._error


class _Lookup(torch.autograd.Function):
    """Rows of a batch; the backward pass updates them."""

    @staticmethod
    def forward(ctx, _anchor: Tensor, table: DynamicEmbedding, batch: torch.ScriptObject, shape: torch.Size) -> Tensor:
        ctx.table, ctx.batch = table, batch
        return table._rows.rows(batch).view(*shape, table.dim)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, gradient: Tensor) -> tuple[None, None, None, None]:
        ctx.table._update(ctx.batch, gradient.reshape(-1, ctx.table.dim))
        return None, None, None, None


class DynamicEmbeddingBag(nn.Module):
    """Sums or means of rows over bags of ids, from a DynamicEmbedding that other bags and features may share."""

    def __init__(self, table: DynamicEmbedding, *, mode: str = "sum", read_only: bool = False) -> None:
        """mode: "sum" or "mean". read_only: ids of this feature get no rows, and update none."""
        super().__init__()
        if mode not in ("sum", "mean"):
            raise ValueError(f"mode is {mode!r}; expected 'sum' or 'mean'")
        self.table, self.mode, self.read_only = table, mode, read_only

    def forward(
        self,
        ids: Tensor,
        offsets: Tensor | None = None,
        *,
        scores: Tensor | None = None,
        step: int | None = None,
    ) -> Tensor:
        """[bags, dim]: of ids [n], int64, the bag b has those from offsets[b] to offsets[b + 1]; an empty one is zeros.

        Or of a jagged nested tensor, whose offsets they are. scores, step: as in DynamicEmbedding.forward.
        """
        if ids.is_nested:
            ids, offsets = ids.values(), ids.offsets()
        if offsets is None or ids.dim() != 1:
            raise ValueError(
                f"ids have {ids.dim()} dimensions; expected one, and offsets [bags + 1], or a jagged nested tensor"
            )
        _check_offsets(offsets, ids)
        rows, table = self.table._rows, self.table
        if self.training and torch.is_grad_enabled() and not self.read_only:
            return _Pool.apply(table._anchor, table, rows.fetch(ids, scores, step), offsets, self.mode)
        return _pooled(rows.look_up(ids), offsets, self.mode)

    def extra_repr(self) -> str:
        """For print()."""
        return f"mode={self.mode}" + (", read_only=True" if self.read_only else "")


def _check_offsets(offsets: Tensor, ids: Tensor) -> None:
    if offsets.dim() != 1 or len(offsets) == 0 or offsets.dtype != torch.int64 or offsets.device != ids.device:
        raise ValueError(
            f"offsets are {offsets.dtype} {list(offsets.shape)} on {offsets.device}; expected int64 [bags + 1] on "
            f"{ids.device}, as the ids are"
        )
    if torch.compiler.is_compiling() or offsets.is_cuda:  # their values would have to be waited for
        torch._assert_async((offsets[0] == 0) & (offsets[-1] == len(ids)) & (offsets.diff() >= 0).all())
    elif int(offsets[0]) != 0 or int(offsets[-1]) != len(ids) or bool((offsets.diff() < 0).any()):
        raise ValueError(
            f"offsets go from {int(offsets[0])} to {int(offsets[-1])}; expected to ascend from 0 to {len(ids)}, the "
            "number of ids: append it to the first place of each bag"
        )


def _pooled(rows: Tensor, offsets: Tensor, mode: str) -> Tensor:
    return torch.segment_reduce(rows, mode, offsets=offsets, axis=0, initial=0)


class _Pool(torch.autograd.Function):
    """Pooled rows of a batch; the backward pass updates the rows."""

    @staticmethod
    def forward(
        ctx, _anchor: Tensor, table: DynamicEmbedding, batch: torch.ScriptObject, offsets: Tensor, mode: str
    ) -> Tensor:
        rows = table._rows.rows(batch)
        ctx.table, ctx.batch, ctx.mode, ctx.count = table, batch, mode, rows.shape[0]
        ctx.save_for_backward(offsets)
        return _pooled(rows, offsets, mode)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, gradient: Tensor) -> tuple[None, None, None, None, None]:
        lengths = ctx.saved_tensors[0].diff()
        if ctx.mode == "mean":
            gradient = gradient / lengths.clamp(min=1).unsqueeze(1)
        ctx.table._update(ctx.batch, gradient.repeat_interleave(lengths, dim=0, output_size=ctx.count))
        return None, None, None, None, None


def _save(path: str | os.PathLike, contents: dict[str, Tensor]) -> None:
    path = pathlib.Path(path)
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
        try:
            torch.save(contents, file)
            file.flush()
            os.fsync(file.fileno())
        except BaseException:
            os.unlink(file.name)
            raise
    os.replace(file.name, path)


def _continued(contents: dict[str, Tensor], increment: dict[str, Tensor], path: str | os.PathLike) -> dict[str, Tensor]:
    """Contents with those of an increment."""
    before, base = int(contents["table"][1]), int(increment.get("base", -1))
    if before != base:
        raise ValueError(
            f"{path} continues a table after {base} fetches, and what is before it has {before}: give the dump and all "
            "its increments in order"
            if base >= 0
            else f"{path} is a whole dump, not an increment"
        )
    left = ~torch.isin(contents["ids"], torch.cat([increment["ids"], increment["gone"]]))
    result = {name: tensor for name, tensor in increment.items() if name not in ("base", "gone")}
    for name in ("ids", "rows", "scores", "touched", "slots"):
        if name in contents and name in increment:
            result[name] = torch.cat([contents[name][left], increment[name]])
    if int(contents["table"][0]) != int(increment["table"][0]) or "slots" not in contents:
        result.pop("slots", None)  # the table has grown, and rows that are not in the increment have moved
    return result
