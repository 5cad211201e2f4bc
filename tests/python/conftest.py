import pytest
import torch


def pytest_generate_tests(metafunc):
    if "device" in metafunc.fixturenames:
        missing = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU on this machine")
        metafunc.parametrize("device", ["cpu", pytest.param("cuda", marks=missing)])


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(1)
    torch.compiler.reset()
