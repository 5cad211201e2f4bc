"""seqfuse.DynamicEmbedding against torch's optimisers; resuming, evaluation, errors."""

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
        {"admit_from": 0},
    ):
        with pytest.raises(ValueError, match="expected"):
            table_of("cpu", **options)
    table = table_of("cpu")
    with pytest.raises(ValueError, match="expected Long"):
        table(torch.tensor([1.0]))
    with pytest.raises((ValueError, RuntimeError), match="custom"):
        table(torch.tensor([1]), scores=torch.tensor([1]))
