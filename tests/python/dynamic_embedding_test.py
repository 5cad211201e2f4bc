"""seqfuse.DynamicEmbedding against torch's optimisers; resuming, evaluation, errors."""

import subprocess
import sys
import time

import pytest
import torch

import seqfuse
from seqfuse import _library

try:
    _library.load_decoder(_library.load())
except ImportError:
    pytest.skip("built without dynamic tables (nlohmann/json.hpp)", allow_module_level=True)


def table_of(device, **options):
    options = {"dim": 4, "capacity": 100, "optimizer": "adam", "learning_rate": 0.05, "device": device, **options}
    return seqfuse.DynamicEmbedding(**options)


OPTIMIZERS = {
    "sgd": torch.optim.SGD,
    "adam": torch.optim.Adam,
    "adagrad": lambda weights, lr: torch.optim.Adagrad(weights, lr, eps=1e-8),
}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_training_equals_torch(device, optimizer):
    table = table_of(device, optimizer=optimizer)
    ids = torch.tensor([[3, -7, 3], [2**63 - 1, -(2**63), -7]], device=device)
    places = torch.tensor([[0, 1, 0], [2, 3, 1]], device=device)
    rows = table(ids).detach()
    weight = torch.stack([rows[0, 0], rows[0, 1], rows[1, 0], rows[1, 1]]).requires_grad_()
    reference = OPTIMIZERS[optimizer]([weight], lr=0.05)
    generator = torch.Generator().manual_seed(1)
    for _ in range(10):
        factor = torch.randn(2, 3, 4, generator=generator).to(device)
        mine, theirs = table(ids), weight[places]
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6)
        (mine * factor).sum().backward()
        reference.zero_grad()
        (theirs * factor).sum().backward()
        reference.step()
    assert len(table) == 4


def test_evaluation_changes_nothing(device):
    table = table_of(device)
    table(torch.tensor([1, 2], device=device))
    table.eval()
    rows = table(torch.tensor([1, 9, 9], device=device))
    assert not rows.requires_grad
    assert torch.equal(rows[1], table.shared_row()) and torch.equal(rows[2], table.shared_row())
    assert not torch.equal(rows[0], table.shared_row())
    assert len(table) == 2 and table.counts()["unknown"] == 2
    table.train()
    with torch.no_grad():
        table(torch.tensor([8], device=device))
    assert len(table) == 2


def test_jagged_ids(device):
    table = table_of(device)
    values = torch.tensor([5, 6, 5, 7], device=device)
    offsets = torch.tensor([0, 3, 3, 4], device=device)
    rows = table(torch.nested.nested_tensor_from_jagged(values, offsets))
    assert rows.is_nested and torch.equal(rows.values(), table(values))
    rows.values().sum().backward()
    assert table.updates == 1
    assert table(torch.empty(0, dtype=torch.int64, device=device)).shape == (0, 4)


def test_dump_and_load(device, tmp_path):
    def train(table, first, last):
        for step in range(first, last):
            ids = (torch.arange(40) * (step + 3) * 7 % 190).to(device)
            table(ids).square().sum().backward()

    options = {"score": "lfu", "admit_from": 2, "in_order": True, "evicted_listed": 1000}
    whole, first, second, third = (table_of(device, **options) for _ in range(4))
    train(whole, 0, 30)
    train(first, 0, 13)
    first.dump(tmp_path / "table")
    second.load(tmp_path / "table")
    third.load_state_dict(first.state_dict())
    train(second, 13, 30)
    train(third, 13, 30)
    expected = whole.contents()
    assert whole.counts()["evicted"] > 10
    for table in (second, third):
        contents = table.contents()
        assert contents.keys() == expected.keys()
        assert all(torch.equal(contents[name], expected[name]) for name in expected)
    ids, scores, more = whole.evicted_keys()
    assert len(ids) == len(scores) == whole.counts()["evicted"] and more == 0
    assert len(whole.evicted_keys()[0]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["table"]
    with pytest.raises(ValueError, match="capacity is 50"):
        table_of(device, capacity=50).load(tmp_path / "table")


def test_scores_erase_and_clear(device):
    table = table_of(device, capacity=3, score="custom", init=("constant", 2.0), evicted_listed=5)
    table(torch.tensor([1, 2, 3, 1], device=device), scores=torch.tensor([5, 1, 7, 4]))
    table(torch.tensor([4], device=device), scores=torch.tensor([0]))
    ids, scores, _ = table.evicted_keys()
    assert ids.tolist() == [2] and scores.tolist() == [1]
    table.erase(torch.tensor([3, 3, 99], device=device))
    assert len(table) == 2
    table.clear()
    assert len(table) == 0


def test_clear_starts_anew(device):
    table = table_of(device, admit_from=2)
    ids = torch.tensor([1, 1, 2], device=device)
    first = table(ids).detach()
    table(ids).sum().backward()
    table.eval()
    table(torch.tensor([9], device=device))
    table.clear()
    counts = table.counts()
    assert (counts["size"], counts["unknown"], table.updates) == (0, 0, 0)
    assert table.contents()["counted_ids"].numel() == 0
    table.train()
    assert torch.equal(table(ids), first)


def test_the_shared_row_is_loaded(device):
    saved, loaded = table_of(device, seed=1), table_of(device, seed=2)
    saved(torch.tensor([5], device=device))
    expected = saved.shared_row()
    assert not torch.equal(loaded.shared_row(), expected)
    loaded.load_contents(saved.contents())
    assert torch.equal(loaded.shared_row(), expected)
    contents = {**saved.contents(), "shared_row": torch.zeros(5)}
    with pytest.raises(ValueError, match="shared row"):
        loaded.load_contents(contents)
    assert torch.equal(loaded.shared_row(), expected)


def test_damaged_contents_change_nothing(device):
    saved, table = table_of(device, admit_from=2), table_of(device, admit_from=2)
    saved(torch.tensor([1, 1, 2, 3], device=device))
    table(torch.tensor([7, 7, 8, 8], device=device))
    contents = saved.contents()
    for name in ("scores", "touched", "slots", "table", "counted_scores", "counted_slots"):
        with pytest.raises(ValueError):
            table.load_contents({**contents, name: contents[name][:0]})
    with pytest.raises(ValueError, match="twice"):
        table.load_contents({**contents, "counted_ids": torch.tensor([2, 2], device=device)})
    assert len(table) == 2


def test_a_full_table_without_eviction_is_an_error(device):
    ids = torch.arange(7, device=device)
    table = table_of(device, capacity=5, evict=False, name="items")
    with pytest.raises(RuntimeError, match="table items: 2 ids found no place among 5 rows"):
        table(ids)
        table.check_failures()
    tolerant = table_of(device, capacity=5, evict=False, failure_is_error=False)
    rows = tolerant(ids)
    assert (rows == tolerant.shared_row()).all(1).sum() == 2
    assert tolerant.counts()["failed"] == 2


def test_wrong_arguments():
    for options in (
        {"capacity": 0},
        {"dim": 0},
        {"optimizer": "adan"},
        {"score": "fifo"},
        {"init": ("uniform", 1.0)},
        {"init": ("gauss", 1.0)},
        {"init": ("uniform", 1.0, 0.5)},
        {"init": ("normal", 0.0, float("inf"))},
        {"evicted_listed": -1},
        {"admit_from": 0},
    ):
        with pytest.raises(ValueError, match="expected"):
            table_of("cpu", **options)
    table = table_of("cpu")
    with pytest.raises(ValueError, match="expected Long"):
        table(torch.tensor([1.0]))
    with pytest.raises(ValueError, match="custom"):
        table(torch.tensor([1]), scores=torch.tensor([1]))
    table = table_of("cpu", score="custom", admit_from=2)
    with pytest.raises(ValueError, match="custom"):
        table(torch.tensor([1, 2]))
    with pytest.raises(ValueError, match="1 scores are given with 2 ids"):
        table(torch.tensor([1, 2]), scores=torch.tensor([1]))
    assert table.contents()["counted_ids"].numel() == 0


def test_float_scores_are_refused(device):
    table = table_of(device, score="custom")
    with pytest.raises(ValueError, match="expected integers"):
        table(torch.tensor([1, 2], device=device), scores=torch.tensor([0.2, 0.7]))
    assert len(table) == 0


@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_a_bag_equals_torchs(device, mode):
    table = table_of(device, optimizer="sgd")
    bag = seqfuse.DynamicEmbeddingBag(table, mode=mode)
    ids = torch.tensor([5, -1, 5, 5, 2**62, 9], device=device)
    offsets = torch.tensor([0, 3, 3, 4, 6], device=device)  # the second bag is empty
    places = torch.tensor([0, 1, 0, 0, 2, 3], device=device)
    weight = table(torch.tensor([5, -1, 2**62, 9], device=device)).detach().clone().requires_grad_()
    generator = torch.Generator().manual_seed(1)
    for _ in range(5):
        factor = torch.randn(4, 4, generator=generator).to(device)
        mine = bag(ids, offsets)
        theirs = torch.nn.functional.embedding_bag(places, weight, offsets, mode=mode, include_last_offset=True)
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6)
        (mine * factor).sum().backward()
        (gradient,) = torch.autograd.grad((theirs * factor).sum(), weight)
        with torch.no_grad():
            weight -= 0.05 * gradient
    jagged = torch.nested.nested_tensor_from_jagged(ids, offsets)
    assert torch.equal(bag(jagged), bag(ids, offsets))
    with pytest.raises(ValueError, match="offsets"):
        bag(ids)


def test_a_read_only_feature_shares_a_table_and_inserts_nothing(device):
    table = table_of(device)
    bag = seqfuse.DynamicEmbeddingBag(table)
    reader = seqfuse.DynamicEmbeddingBag(table, read_only=True)
    offsets = torch.tensor([0, 2], device=device)
    bag(torch.tensor([1, 2], device=device), offsets)
    pooled = reader(torch.tensor([1, 3], device=device), offsets)
    assert not pooled.requires_grad and len(table) == 2 and table.counts()["unknown"] == 1
    rows = table(torch.tensor([1], device=device)).detach()
    torch.testing.assert_close(pooled, rows + table.shared_row())


def trained(table, first, last, device):
    for step in range(first, last):
        ids = torch.arange(20) * 7 * step % 131 - 9
        (table(ids.to(device)) * torch.arange(20, device=device).unsqueeze(1).sin()).sum().backward()


@pytest.mark.parametrize("options", [{}, {"device_rows": 30}, {"device_rows": 25, "cached": True}])
def test_increments_on_a_dump_are_the_whole_table(device, tmp_path, options):
    def make():
        return table_of(device, capacity=60, evicted_listed=1000, in_order=True, initial_capacity=20, **options)

    table = make()
    with pytest.raises(ValueError, match="continues a dump"):
        table.dump_increment(tmp_path / "early.pt")
    trained(table, 1, 10, device)
    table.dump(tmp_path / "base.pt")
    files = []
    for number in range(3):
        trained(table, 10 + 3 * number, 13 + 3 * number, device)
        table.erase(torch.tensor([number * 7 - 9], device=device))
        table.evicted_keys()  # does not take them from the increment
        files.append(tmp_path / f"increment{number}.pt")
        table.dump_increment(files[-1])
    increment = torch.load(files[0], weights_only=True)
    assert len(increment["gone"]) > 0 and len(increment["ids"]) < 60
    assert not torch.isin(increment["gone"], increment["ids"]).any()

    again = make()
    again.load(tmp_path / "base.pt", files)
    for other in (table, again):
        trained(other, 30, 34, device)
    expected, actual = table.contents(), again.contents()
    for name in expected:
        assert torch.equal(expected[name], actual[name]), name
    with pytest.raises(ValueError, match="in order"):
        make().load(tmp_path / "base.pt", files[1:])
    with pytest.raises(ValueError, match="not an increment"):
        make().load(tmp_path / "base.pt", [tmp_path / "base.pt"])


def by_id(table):
    """Rows and scores in the order of the ids."""
    contents = table.contents()
    order = contents["ids"].argsort()
    return [contents[name][order] for name in ("ids", "rows", "scores", "touched")]


def test_increments_of_a_table_that_grew_have_its_rows(device, tmp_path):
    def make():
        return table_of(device, capacity=500, evicted_listed=10, in_order=True, initial_capacity=20)

    table = make()
    trained(table, 1, 2, device)
    table.dump(tmp_path / "base.pt")
    before, files = table.counts()["capacity"], []
    for number in range(3):
        trained(table, 2 + 3 * number, 5 + 3 * number, device)
        files.append(tmp_path / f"increment{number}.pt")
        table.dump_increment(files[-1])
    assert table.counts()["capacity"] > before
    again = make()
    again.load(tmp_path / "base.pt", files)
    for _ in range(2):  # the rows lie elsewhere, which matters only for evictions
        assert all(torch.equal(a, b) for a, b in zip(by_id(table), by_id(again), strict=True))
        trained(table, 11, 14, device)
        trained(again, 11, 14, device)


def test_an_increment_without_all_evicted_ids_is_refused(device, tmp_path):
    table = table_of(device, capacity=10, evicted_listed=2)
    table(torch.arange(10, device=device))
    table.dump(tmp_path / "base.pt")
    table(torch.arange(10, 15, device=device))
    with pytest.raises(ValueError, match="3 ids were evicted that were not listed"):
        table.dump_increment(tmp_path / "increment.pt")
    ids, _, more = table.evicted_keys()
    assert len(ids) == 2 and more == 3


WRITER = """
import sys, torch, seqfuse
table = seqfuse.DynamicEmbedding(64, capacity=4000, evicted_listed=100)
table(torch.arange(4000)).sum().backward()
table.dump(sys.argv[1])
print("written", flush=True)
while True:
    table.dump(sys.argv[1])
"""


def test_a_process_killed_while_it_dumps_leaves_a_whole_file(tmp_path):
    path = tmp_path / "items.pt"
    for moment in (0.001, 0.013, 0.037):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE)
        writer.stdout.readline()
        time.sleep(moment)
        writer.kill()
        writer.wait()
        table = seqfuse.DynamicEmbedding(64, capacity=4000)
        table.load(path)
        assert len(table) == 4000


GROWING_WRITER = """
import sys, torch, seqfuse
table = seqfuse.DynamicEmbedding(64, capacity=100_000, initial_capacity=16, evicted_listed=100)
table(torch.arange(10)).sum().backward()
table.dump(sys.argv[1] + "/base.pt")
print("written", flush=True)
for number in range(1900):
    table(torch.arange(50 * number, 50 * number + 60)).sum().backward()  # 50 new ids
    table.dump_increment(f"{sys.argv[1]}/increment{number:04}.pt")
"""


def test_a_process_killed_while_it_grows_or_writes_increments_leaves_whole_files(tmp_path):
    for attempt, moment in enumerate((0.002, 0.02, 0.09)):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        writer = subprocess.Popen([sys.executable, "-c", GROWING_WRITER, str(folder)], stdout=subprocess.PIPE)
        writer.stdout.readline()
        time.sleep(moment)
        writer.kill()
        writer.wait()
        files = sorted(folder.glob("increment*.pt"))  # what was half written has another name
        table = seqfuse.DynamicEmbedding(64, capacity=100_000, learning_rate=0.01)
        table.load(folder / "base.pt", files)
        assert len(table) == (50 * len(files) + 10 if files else 10)
        again = seqfuse.DynamicEmbedding(64, capacity=100_000)
        again(torch.arange(10)).sum().backward()
        for number in range(len(files)):
            again(torch.arange(50 * number, 50 * number + 60)).sum().backward()
        assert all(torch.equal(a, b) for a, b in zip(by_id(table)[:3], by_id(again)[:3], strict=True))


@pytest.mark.parametrize("options", [{}, {"cached": True, "device_rows": 25}, {"initial_capacity": 20}])
@pytest.mark.parametrize("slots", [1, 40, 1000])
def test_a_background_dump_has_the_table_of_one_moment(device, tmp_path, options, slots):
    table = table_of(device, capacity=60, evicted_listed=1000, in_order=True, **options)
    trained(table, 1, 4, device)
    dump = table.start_dump(tmp_path / "items.pt", slots_at_once=slots)
    step = 4
    while dump.advance() and step < 20:
        trained(table, step, step + 1, device)
        if step == 6:
            table.erase(torch.tensor([-9], device=device))
        step += 1
    expected = table.contents()
    dump.finish()
    trained(table, step, step + 3, device)  # while the file is written
    dump.wait()
    written = torch.load(tmp_path / "items.pt", weights_only=True)
    assert written.keys() == expected.keys()
    for name in expected:
        assert torch.equal(written[name], expected[name]), name
    table.dump_increment(tmp_path / "increment.pt")
    again = table_of(device, capacity=60, in_order=True, **options)
    again.load(tmp_path / "items.pt", [tmp_path / "increment.pt"])
    assert all(torch.equal(a, b) for a, b in zip(by_id(table), by_id(again), strict=True))
    with pytest.raises(ValueError, match="is finished"):
        dump.finish()


def test_a_background_dump_says_what_went_wrong(device, tmp_path):
    table = table_of(device, capacity=60)
    trained(table, 1, 3, device)
    dump = table.start_dump(tmp_path / "missing" / "items.pt")
    with pytest.raises(ValueError, match="not finished"):
        dump.wait()
    dump.finish()  # also without advance()
    with pytest.raises(FileNotFoundError):
        dump.wait()
    # No increment continues a file that was not written.
    with pytest.raises(FileNotFoundError):
        table.dump_increment(tmp_path / "increment.pt")
    with pytest.raises(ValueError, match="continues a dump"):
        table.dump_increment(tmp_path / "increment.pt")
    first = table.start_dump(tmp_path / "first.pt")
    second = table.start_dump(tmp_path / "second.pt")
    for call in (first.advance, first.finish):
        with pytest.raises(ValueError, match="taken the place"):
            call()
    second.finish()
    assert not second.advance()
    table.dump(tmp_path / "second.pt")  # after the thread's file
    assert torch.load(tmp_path / "second.pt", weights_only=True)["ids"].equal(table.contents()["ids"])
    with pytest.raises(ValueError, match="slots_at_once is 0"):
        table.start_dump(tmp_path / "items.pt", slots_at_once=0)


def test_prefetched_rows_are_the_same(device):
    def run(ahead, **options):
        table = table_of(device, capacity=60, in_order=True, **options)
        for step in range(1, 20):
            ids = [(torch.arange(20) * 7 * number % 131 - 9).to(device) for number in (step, step + 1)]
            loss = (table(ids[0]) * torch.arange(20, device=device).unsqueeze(1).sin()).sum()
            if ahead:
                table.prefetch(ids[1].repeat(2))
            loss.backward()
        return table.contents()

    expected = run(False)
    for options in ({}, {"cached": True, "device_rows": 25}):
        actual = run(True, **options)
        for name in expected:
            assert torch.equal(expected[name], actual[name]), name
