"""seqfuse.load_run against the executable."""

import json
import shutil
import struct

import pytest
import torch
from torch.export import Dim

import seqfuse
from seqfuse.checkpoint import read_safetensors, read_table
from trained_runs import history_of, recommend

pytest.importorskip("pyarrow", reason="load_run reads raw ids with pyarrow")
RETRIEVAL = ["hstu_research", "hstu", "hstu_no_actions"]


def events_for(name, user):
    """What the run reads of a user's events."""
    events = history_of(user)
    read = {"hstu_research": ["timestamps"], "hstu": ["actions", "context"], "hstu_no_actions": []}[name]
    return events["history"], {key: events[key] for key in read}


def expect_same(found, expected):
    assert [item for item, _ in found] == [item for item, _ in expected]
    assert torch.allclose(*(torch.tensor([score for _, score in each]) for each in (found, expected)), atol=2e-6)


@pytest.mark.parametrize("name", RETRIEVAL)
def test_recommends_what_the_executable_does(runs, name):
    model = seqfuse.load_run(runs[name])
    assert model.step == 12
    for user in (0, 17, 59):
        history, events = events_for(name, user)
        expected = recommend(runs[name], "--user", f"u{user}", "--top-k", 7)
        expect_same(model.recommend(history, 7, **events), expected)
        everything = recommend(runs[name], "--user", f"u{user}", "--top-k", 50, "--include-seen")
        assert len(everything) == 50
        expect_same(model.recommend(history, 50, include_seen=True, **events), everything)
        items = [item for item, _ in everything[::9]]
        expect_same(list(zip(items, model.score(history, items, **events))), everything[::9])


@pytest.mark.parametrize("name", RETRIEVAL)
def test_fills_in_what_is_missing_as_the_executable_does(runs, name):
    history = ["item3", "item9", "item27"]
    found = seqfuse.load_run(runs[name], "step_12").recommend(history, 10)
    expect_same(found, recommend(runs[name], "--history", ",".join(history), "--top-k", 10))


def test_reads_the_time_of_the_request(runs):
    model = seqfuse.load_run(runs["hstu_research"])
    history, events = events_for("hstu_research", 5)
    late = model.recommend(history, 10, request_time=900_000, **events)
    expect_same(late, recommend(runs["hstu_research"], "--user", "u5", "--request-time", 900_000, "--top-k", 10))
    assert late != model.recommend(history, 10, **events)


def batch_of(model, name, users):
    """Arguments of forward() for several users."""
    windows = [model._window(history, **events) for history, events in (events_for(name, user) for user in users)]
    batch = {
        key: torch.cat([window[key] for window in windows])
        for key in ("items", "timestamps", "request_times", "actions")
        if key in windows[0]
    }
    batch["offsets"] = seqfuse.lengths_to_offsets(torch.tensor([len(window["items"]) for window in windows]))
    if windows[0].get("context"):
        batch["context"] = [torch.cat(values) for values in zip(*(window["context"] for window in windows))]
    return batch


@pytest.mark.parametrize("name", RETRIEVAL)
def test_forward_scores_batches_and_exports(runs, name):
    model = seqfuse.load_run(runs[name])
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    batch = batch_of(model, name, [1, 2, 3])
    scores = model(**batch)
    assert scores.shape == (3, 50)
    history, events = events_for(name, 2)
    assert torch.allclose(scores[1], torch.tensor(model.score(history, model.item_ids, **events)), atol=1e-6)

    def any_length(value):
        return [any_length(each) for each in value] if isinstance(value, list) else {0: Dim.DYNAMIC}

    shapes = {key: any_length(value) for key, value in batch.items()}
    exported = torch.export.export(model, (), batch, dynamic_shapes=shapes).module()
    for users in ([1, 2, 3], [4, 5, 6, 7, 8]):
        other = batch_of(model, name, users)
        assert torch.equal(exported(**other), model(**other))


def test_refuses_by_name_what_it_does_not_support(runs, tmp_path):
    with pytest.raises(NotImplementedError, match="is a ranking run: load_run supports retrieval"):
        seqfuse.load_run(runs["ranking"])
    with pytest.raises(FileNotFoundError, match="is not a run directory"):
        seqfuse.load_run(tmp_path)
    run = tmp_path / "run"
    shutil.copytree(runs["hstu_research"], run)
    with pytest.raises(FileNotFoundError, match="step_5 does not exist; the checkpoints of the run are: .*step_12"):
        seqfuse.load_run(run, "step_5")
    item = run / "checkpoints/step_12/tables/item.safetensors"
    item.write_bytes(item.read_bytes()[:-4])
    with pytest.raises(ValueError, match=r"item.safetensors: \d+ bytes, but .*state.json says"):
        seqfuse.load_run(run)
    with pytest.raises(ValueError, match="damaged, or no safetensors file"):
        read_safetensors(item)
    shutil.rmtree(run / "vocabulary")
    shutil.copytree(runs["hstu_research"] / "checkpoints", run / "checkpoints", dirs_exist_ok=True)
    with pytest.raises(FileNotFoundError, match="--resume` adds it"):
        seqfuse.load_run(run)


def test_refuses_wrong_requests(runs):
    model = seqfuse.load_run(runs["hstu_research"])
    for arguments, message in (
        (([],), "the history has no items"),
        ((["nothing"],), "item 'nothing' is not among the 50 items"),
    ):
        with pytest.raises(ValueError, match=message):
            model.recommend(*arguments)
    for top_k in (0, -1, 2.5, True):
        with pytest.raises(ValueError, match=f"top_k is {top_k}: expected a whole number of 1 or more"):
            model.recommend(["item1"], top_k)
    for events, message in (
        ({"timestamps": [1, float("nan")]}, r"timestamps\[1\] is nan: expected a whole number"),
        ({"timestamps": ["1", 2]}, r"timestamps\[0\] is '1': expected a whole number"),
        ({"timestamps": [1, 2**63]}, r"timestamps\[1\] is 9223372036854775808"),
        ({"request_time": "2024-01-01"}, "request_time is '2024-01-01': expected a whole number"),
        ({"timestamps": [1, 2.5]}, r"timestamps\[1\] is 2.5"),
        ({"timestamps": [1]}, "timestamps: 1 given for 2 items"),
        ({"timestamps": [2, 1]}, "timestamps decrease"),
        ({"timestamps": [1, 2], "request_time": 1}, "request_time 1 is before"),
    ):
        with pytest.raises(ValueError, match=message):
            model.recommend(["item1", "item2"], **events)
    hstu = seqfuse.load_run(runs["hstu"])
    for events, message in (
        ({"actions": ["9"]}, "no action '9': it has 0, 1, 2, 3, 4"),
        ({"context": {"country": "none"}}, "'none' is no value of context feature country"),
        ({"context": {"county": "x"}}, "no context feature 'county'"),
    ):
        with pytest.raises(ValueError, match=message):
            hstu.recommend(["item1"], **events)


def test_takes_whole_times_of_any_type_and_warns_of_too_large_a_top_k(runs):
    model = seqfuse.load_run(runs["hstu_research"])
    history, events = events_for("hstu_research", 5)
    times = events["timestamps"]
    expected = model.recommend(history, 10, timestamps=times)
    for others in ([float(time) for time in times], torch.tensor(times).numpy()):
        assert model.recommend(history, 10, timestamps=others) == expected
    with pytest.warns(UserWarning, match="top_k is 51, but there are 50 items"):
        assert len(model.recommend(["item1"], 51, include_seen=True)) == 50


def test_tables_are_read_by_id(tmp_path):
    """As a checkpoint may have them: rows in another order, with their ids."""
    rows = torch.tensor([[2.0, 2.5], [0.0, 0.5], [1.0, 1.5]])
    tensors = {"item": ("F32", rows), "item.ids": ("I64", torch.tensor([2, 0, 1]))}
    header, body = {}, b""
    for name, (dtype, tensor) in tensors.items():
        content = tensor.numpy().tobytes()
        header[name] = {
            "dtype": dtype,
            "shape": list(tensor.shape),
            "data_offsets": [len(body), len(body) + len(content)],
        }
        body += content
    text = json.dumps(header).encode()
    (tmp_path / "item.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + body)
    assert torch.equal(read_table(tmp_path / "item.safetensors"), rows[[1, 2, 0]])
