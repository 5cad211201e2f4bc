import pytest
import torch

from cases import needs_gpu


def pytest_generate_tests(metafunc):
    if "device" in metafunc.fixturenames:
        metafunc.parametrize("device", ["cpu", pytest.param("cuda", marks=needs_gpu)])


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(1)
    torch.compiler.reset()
