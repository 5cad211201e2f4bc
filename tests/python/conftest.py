import pytest
import torch

from cases import needs_gpu
from trained_runs import train_runs


def pytest_generate_tests(metafunc):
    if "device" in metafunc.fixturenames:
        metafunc.parametrize("device", ["cpu", pytest.param("cuda", marks=needs_gpu)])


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(1)
    torch.compiler.reset()


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    """Small trained runs by name (trained_runs.py)."""
    return train_runs(tmp_path_factory.mktemp("runs"))
