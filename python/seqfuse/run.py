"""Trained retrieval runs as modules."""

import math
import numbers
import pathlib
import warnings
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from seqfuse.checkpoint import Checkpoint, Vocabulary, find_checkpoint
from seqfuse.embedding import embedding_lookup, position_encoding
from seqfuse.jagged import interleave, jagged_concat
from seqfuse.layer import HSTULayer
from seqfuse.norms import l2_normalize


def load_run(
    run: str | pathlib.Path, checkpoint: str | None = None, *, device: torch.device | str = "cpu"
) -> "RetrievalRun":
    """The model of a run of `seqfuse train retrieval`, in evaluation mode.

    checkpoint: "step_N"; None: the newest. Needs the run alone, not its data set, and pyarrow for the raw ids.

    Raises FileNotFoundError for what is missing, ValueError for damaged files, NotImplementedError for ranking runs.
    """
    run = pathlib.Path(run)
    loaded = Checkpoint(find_checkpoint(run, checkpoint))
    if loaded.spec["task"] != "retrieval":
        raise NotImplementedError(
            f"{run} is a {loaded.spec['task']} run: load_run supports retrieval; `seqfuse recommend --candidates` ranks"
        )
    vocabulary = Vocabulary(run)
    if vocabulary.hash != loaded.spec["dataset_hash"]:
        raise ValueError(
            f"{run}/vocabulary is not that of step {loaded.step}, which was saved before the data set grew: give a "
            "newer checkpoint"
        )
    model = RetrievalRun(loaded.spec, vocabulary, loaded.step)
    model.load_state_dict(loaded.weights)
    return model.to(device).eval()


class RetrievalRun(nn.Module):
    """A retrieval model and its vocabulary; load_run makes it.

    Parameters have the names and layouts of checkpoints. item_ids: raw ids, in the order of the columns of forward().
    spec: the model's description in state.json. step: of the checkpoint. Computes in float32 on any device.
    """

    def __init__(self, spec: dict, vocabulary: Vocabulary, step: int) -> None:
        super().__init__()
        network = spec["NetworkArgs"]
        encoders = {"hstu_research": _ResearchEncoder, "hstu": _HSTUEncoder}
        architecture = network["architecture"]
        if architecture not in encoders:
            raise NotImplementedError(f"load_run supports the architectures {', '.join(encoders)}, not {architecture}")
        self.spec, self.step = spec, step
        self.item_ids, self._vocabulary = vocabulary.items, vocabulary
        self.max_history: int = spec["max_history"]
        self._eps: float = spec["RetrievalArgs"]["l2_norm_eps"]
        width = network["hidden_size"]
        tables = {"item": nn.Parameter(torch.empty(spec["num_items"] + 1, width))}
        encoders[architecture].add_tables(spec, tables)
        self.tables = nn.ParameterDict(tables)
        self.encoder = encoders[architecture](spec)

    def forward(
        self,
        items: Tensor,
        offsets: Tensor,
        *,
        timestamps: Tensor | None = None,
        request_times: Tensor | None = None,
        actions: Tensor | None = None,
        context: Sequence[Tensor] = (),
        max_history: int = 0,
    ) -> Tensor:
        """Scores [B, items] of all items for B histories: cosines; column j is item_ids[j].

        items: int64 [T], indices (column + 1; 0: unknown), the histories one after the other, oldest event first.
        offsets: int64 [B + 1]. No history is empty, nor longer than self.max_history.
        "hstu_research" reads timestamps, int64 [T], and request_times, int64 [B]. "hstu" reads actions, labels int64
        [T], if the data set has any, and context, an int64 [B] for each feature.
        max_history: at least the longest history; needed on CUDA.
        """
        queries = self.query(
            items,
            offsets,
            timestamps=timestamps,
            request_times=request_times,
            actions=actions,
            context=context,
            max_history=max_history,
        )
        return queries @ self.item_vectors().t()

    def query(self, items: Tensor, offsets: Tensor, **inputs) -> Tensor:
        """Vectors [B, D] of histories, L2-normalised; inputs as of forward()."""
        states = self.encoder(self.tables, items, offsets, **inputs)
        return l2_normalize(states, self._eps)

    def item_vectors(self) -> Tensor:
        """[items, D], L2-normalised; row j is of item_ids[j]."""
        return l2_normalize(self.tables["item"], self._eps)[1:]

    @torch.no_grad()
    def recommend(
        self, history: Sequence[str], top_k: int = 10, *, include_seen: bool = False, **events
    ) -> list[tuple[str, float]]:
        """The top_k items for a history of raw ids, oldest first, as (id, score), best first.

        include_seen: also items of the history. events: what else is known, as flags of `seqfuse recommend` are:
        timestamps (numbers in the data set's unit), request_time, actions (names; bits also as one number),
        context {feature: raw value}. What is missing is filled in with what is typical of the data set, as there.
        Warns where top_k is more than there are items, and gives fewer. Raises ValueError for unknown ids, names and
        values, for times that are not whole numbers, for an empty history and for a top_k below 1.
        """
        if isinstance(top_k, bool) or not isinstance(top_k, numbers.Integral) or top_k < 1:
            raise ValueError(f"top_k is {top_k!r}: expected a whole number of 1 or more")
        if top_k > len(self.item_ids):
            warnings.warn(f"top_k is {top_k}, but there are {len(self.item_ids)} items: giving fewer", stacklevel=2)
        scores = self._scores(history, **events)
        if not include_seen:
            scores[[self._vocabulary.item_index[item] - 1 for item in history]] = -torch.inf
        best = torch.sort(scores, descending=True, stable=True)
        found = zip(best.indices[:top_k].tolist(), best.values[:top_k].tolist())
        return [(self.item_ids[index], score) for index, score in found if score > -torch.inf]

    @torch.no_grad()
    def score(self, history: Sequence[str], items: Sequence[str], **events) -> list[float]:
        """The scores of items (raw ids) for a history; events as of recommend()."""
        columns = [self._item(item) - 1 for item in items]
        return self._scores(history, **events)[columns].tolist()

    def _scores(self, history: Sequence[str], **events) -> Tensor:
        inputs = self._window(history, **events)
        return self(**inputs)[0]

    def _item(self, raw: str) -> int:
        index = self._vocabulary.item_index.get(raw)
        if index is None:
            raise ValueError(f"item {raw!r} is not among the {len(self.item_ids)} items, such as {self.item_ids[0]!r}")
        return index

    def _window(
        self,
        history: Sequence[str],
        *,
        timestamps: Sequence[int] | None = None,
        request_time: int | None = None,
        actions: Sequence[str | int] | None = None,
        context: Mapping[str, str] | None = None,
    ) -> dict:
        """The arguments of forward() for one history."""
        if len(history) == 0:
            raise ValueError("the history has no items, and the model recommends what follows them: give one or more")
        for name, values in (("timestamps", timestamps), ("actions", actions)):
            if values is not None and len(values) != len(history):
                raise ValueError(f"{name}: {len(values)} given for {len(history)} items of the history")
        newest = slice(-self.max_history, None)
        device = self.tables["item"].device

        def integers(values: Sequence[int]) -> Tensor:
            return torch.tensor(values, dtype=torch.long, device=device)

        items = [self._item(item) for item in history][newest]
        window = {
            "items": integers(items),
            "offsets": integers([0, len(items)]),
            "max_history": len(items),
        }
        window |= self.encoder.events(self._vocabulary, len(history), timestamps, request_time, actions, context or {})
        for name in ("timestamps", "actions"):
            if name in window:
                window[name] = integers(window[name][newest])
        if "request_times" in window:
            window["request_times"] = integers(window["request_times"])
        if "context" in window:
            window["context"] = [integers([value]) for value in window["context"]]
        return window


class _ResearchEncoder(nn.Module):
    """Items alone, with learned positions and a relative bias by position and time."""

    def __init__(self, spec: dict) -> None:
        super().__init__()
        network = spec["NetworkArgs"]
        width, positions = network["hidden_size"], spec["scaling_seqlen"]
        self.position = nn.Parameter(torch.empty(positions, width))
        self.layers = nn.ModuleList(
            HSTULayer.research(
                width,
                network["num_attention_heads"],
                network["kv_channels"],
                max_seqlen=positions,
                num_time_buckets=network["num_time_buckets"],
                norm_epsilon=network["norm_epsilon"],
                **_masks(network),
            )
            for _ in range(network["num_layers"])
        )

    @staticmethod
    def add_tables(spec: dict, tables: dict) -> None:
        pass  # it reads items alone

    def forward(
        self, tables, items, offsets, *, timestamps=None, request_times=None, max_history=0, **unread
    ) -> Tensor:
        """The state after the last event of each history, [B, D]."""
        x = embedding_lookup(tables["item"], items)
        x = position_encoding(x, self.position, offsets, None, x.shape[1] ** 0.5)
        for layer in self.layers:
            x = layer(x, offsets, timestamps=timestamps, request_times=request_times, max_seqlen=max_history)
        return x[offsets[1:] - 1]

    def events(self, vocabulary, length, timestamps, request_time, actions, context) -> dict:
        gap = vocabulary.typical_gap
        if timestamps is not None:
            timestamps = [_whole(f"timestamps[{i}]", time) for i, time in enumerate(timestamps)]
        if request_time is not None:
            request_time = _whole("request_time", request_time)
        if timestamps is None:
            request_time = length * gap if request_time is None else request_time
            timestamps = [request_time - (length - i) * gap for i in range(length)]
        if timestamps != sorted(timestamps):
            raise ValueError("timestamps decrease: give events oldest first")
        if request_time is None:
            request_time = timestamps[-1] + gap
        if request_time < timestamps[-1]:
            raise ValueError(f"request_time {request_time} is before that of the last event, {timestamps[-1]}")
        return {"timestamps": timestamps, "request_times": [request_time]}


class _HSTUEncoder(nn.Module):
    """Context, then item and action of each event in turn."""

    def __init__(self, spec: dict) -> None:
        super().__init__()
        network = spec["NetworkArgs"]
        width = network["hidden_size"]
        self.has_actions = spec["num_actions"] > 0
        self.features = [feature["name"] for feature in spec["context"]]
        self.position = nn.Parameter(torch.empty(network["num_position_buckets"], width))
        item_width, context_width = network["item_embedding_dim"], network["contextual_embedding_dim"]
        self.item_mlp = _mlp(item_width, width) if item_width > 0 else None
        self.context_mlp = _mlp(context_width, width) if context_width > 0 and self.features else None
        self.layers = nn.ModuleList(
            HSTULayer(
                width,
                network["num_attention_heads"],
                network["kv_channels"],
                scaling_seqlen=spec["scaling_seqlen"],
                norm_epsilon=network["norm_epsilon"],
                **_masks(network),
            )
            for _ in range(network["num_layers"])
        )

    @staticmethod
    def add_tables(spec: dict, tables: dict) -> None:
        network = spec["NetworkArgs"]
        width = tables["item"].shape[1]
        if spec["num_actions"] > 0:
            tables["action"] = nn.Parameter(torch.empty(spec["num_actions"], width))
        for feature in spec["context"]:
            columns = network["contextual_embedding_dim"] if network["contextual_embedding_dim"] > 0 else width
            tables[_table_name(feature["name"])] = nn.Parameter(torch.empty(feature["vocab_size"], columns))

    def forward(self, tables, items, offsets, *, actions=None, context=(), max_history=0, **unread) -> Tensor:
        """The state after the item of the last event of each history, [B, D]."""
        windows = offsets.shape[0] - 1
        x = self._rows(self.item_mlp, tables["item"], items)
        events = offsets
        if self.has_actions:
            x = interleave(x, self._rows(self.item_mlp, tables["action"], actions))
            events = offsets * 2
        tokens, count = events, len(self.features)
        if count > 0:
            rows = [embedding_lookup(tables[_table_name(n)], ids) for n, ids in zip(self.features, context)]
            rows = torch.stack(rows, 1).flatten(0, 1)
            if self.context_mlp is not None:
                rows = self.context_mlp(rows)
            contexts = torch.arange(windows + 1, device=offsets.device) * count
            x = jagged_concat([rows, x], [contexts, events])
            tokens = events + contexts
        x = position_encoding(x, self.position, tokens, None, x.shape[1] ** 0.5)
        longest = count + max_history * (2 if self.has_actions else 1) if max_history > 0 else 0
        for layer in self.layers:
            x = layer(x, tokens, max_seqlen=longest)
        return x[tokens[1:] - (2 if self.has_actions else 1)]

    @staticmethod
    def _rows(mlp: nn.Module | None, table: Tensor, ids: Tensor) -> Tensor:
        rows = embedding_lookup(table, ids)
        return rows if mlp is None else mlp(rows)

    def events(self, vocabulary, length, timestamps, request_time, actions, context) -> dict:
        for feature in context:
            if feature not in self.features:
                raise ValueError(f"the data set has no context feature {feature!r}: it has {self.features}")
        values = [_context_value(vocabulary, name, context[name]) if name in context else 0 for name in self.features]
        window = {"context": values}
        if self.has_actions:
            if actions is None:
                window["actions"] = [vocabulary.typical_action] * length
            else:
                window["actions"] = [_label(vocabulary, action) for action in actions]
        return window


def _masks(network: dict) -> dict:
    return {name: network[name] for name in ("target_group_size", "max_attn_len", "min_full_attn_seq_len")}


def _mlp(columns: int, width: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(columns, width), nn.ReLU(), nn.Linear(width, width))


def _whole(name: str, value: object) -> int:
    """A time as an integer. Raises ValueError for text, NaN, fractions and what int64 does not hold."""
    if isinstance(value, Tensor) and value.ndim == 0:
        value = value.item()
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    is_finite = isinstance(value, numbers.Integral) or (is_number and math.isfinite(value))
    if not is_number or not is_finite or value != int(value) or not -(2**63) <= int(value) < 2**63:
        raise ValueError(f"{name} is {value!r}: expected a whole number in the unit of the data set's times")
    return int(value)


def _table_name(feature: str) -> str:
    name = feature.replace(".", "_")
    return f"context_{name}" if name in ("item", "action") else name


def _context_value(vocabulary: Vocabulary, feature: str, raw: str) -> int:
    index = vocabulary.context[feature].get(str(raw))
    if index is None:
        raise ValueError(f"{raw!r} is no value of context feature {feature}: leave it out, which makes it unknown")
    return index


def _label(vocabulary: Vocabulary, action: str | int) -> int:
    names = vocabulary.action_names
    if vocabulary.action_kind == "bits":
        if isinstance(action, int):
            return action
        parts = [part.strip() for part in action.split("+")]
        if all(part in names for part in parts):
            return sum(1 << names.index(part) for part in set(parts))
    elif str(action) in names:
        return names.index(str(action))
    raise ValueError(f"the data set has no action {action!r}: it has {', '.join(names)}")
