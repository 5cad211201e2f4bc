"""The wheel of tools/wheel without what auditwheel adds: its contents, its command, and versions that it refuses."""

import base64
import csv
import hashlib
import importlib.machinery
import importlib.util
import io
import os
import pathlib
import re
import subprocess
import sys
import zipfile

import pytest
import torch

from seqfuse import _built_for, _command_line

ROOT = pathlib.Path(__file__).parents[2]
BINARY = pathlib.Path(os.environ.get("SEQFUSE_BINARY", ROOT / "build/bin/seqfuse"))
WHEEL = {"torch": "2.11.0+cu130", "cuda": "13.0", "pyarrow": "25.0.1", "cpu_features": ["avx2", "fma"]}


def load_tool():
    loader = importlib.machinery.SourceFileLoader("wheel_tool", str(ROOT / "tools/wheel"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("wheel_tool", loader))
    loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    tool = load_tool()
    build = BINARY.parent.parent
    path = tmp_path_factory.mktemp("wheel") / f"seqfuse-0.1.0-{tool.TAG}.whl"
    tool.write_wheel(path, tool.contents(build, tool.read_build(build)))
    return path


@pytest.fixture(scope="module")
def installed(wheel):
    """A folder in which pip installed the wheel, and nothing else."""
    folder = wheel.with_name("installed")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--target", folder, wheel]
    subprocess.run(pip, check=True)
    return folder


def run(installed, *arguments, python_path=(), executable="bin/seqfuse"):
    # The script runs with the Python that pip wrote into it, which is this one.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SEQFUSE_")}
    environment["PYTHONPATH"] = os.pathsep.join([*map(str, python_path), str(installed)])
    command = [sys.executable if executable == "python" else installed / executable, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=installed)


def test_it_holds_the_binary_the_libraries_and_every_module(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        record = next(name for name in names if name.endswith(".dist-info/RECORD"))
        rows = list(csv.reader(io.StringIO(archive.read(record).decode())))
        assert {row[0] for row in rows} == names
        for name, digest, size in rows:
            if name != record:
                data = archive.read(name)
                expected = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
                assert (digest, size) == (f"sha256={expected}", str(len(data)))
        metadata = archive.read(record.replace("RECORD", "METADATA")).decode()
        assert archive.getinfo("seqfuse/bin/seqfuse").external_attr >> 16 == 0o100755
    modules = {str(path.relative_to(ROOT / "python")) for path in (ROOT / "python").rglob("*.py")}
    libraries = {f"seqfuse/lib/libseqfuse_{name}.so" for name in ("ops", "decoder", "engine")}
    assert modules | libraries | {"seqfuse/py.typed", "seqfuse/_built_for.json"} < names
    assert "Requires-Dist" not in metadata  # which would let pip replace torch
    assert "\n# seqfuse\n" in metadata


def test_the_command_is_the_binary(installed):
    version = run(installed, "--version")
    assert (version.returncode, version.stdout) == (0, "seqfuse 0.1.0\n"), version.stderr
    wrong = run(installed, "trian")
    assert wrong.returncode == 2
    assert "did you mean 'train'?" in wrong.stderr
    engine = run(installed, "recommend", "--help")
    assert engine.returncode == 0, engine.stderr


def test_the_package_loads_its_own_library(installed):
    shown = run(installed, "-c", "import seqfuse; print(seqfuse.library_path)", executable="python")
    assert shown.stdout.strip() == str(installed / "seqfuse/lib/libseqfuse_ops.so"), shown.stderr


def test_another_torch_is_refused_by_name(installed, tmp_path):
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch/__init__.py").write_text("from torch import version\n__version__ = version.__version__\n")
    (tmp_path / "torch/version.py").write_text("__version__ = '2.3.1'\ncuda = None\n")
    expected = "this Python has torch 2.3.1 with no CUDA. Install the former (pip install 'torch==2.11.*')"
    expected = expected.replace("2.11", ".".join(torch.__version__.split(".")[:2]))
    trained = run(installed, "train", python_path=[tmp_path])
    assert trained.returncode == 1
    assert expected in trained.stderr
    imported = run(installed, "-c", "import seqfuse", python_path=[tmp_path], executable="python")
    assert expected in imported.stderr
    assert run(installed, "preprocess", "--help", python_path=[tmp_path]).returncode == 0
    doctor = run(installed, "doctor", python_path=[tmp_path])
    assert expected in doctor.stderr


@pytest.mark.parametrize(
    ("version", "cuda", "problem"),
    [
        ("2.11.0", "13.0", None),
        ("2.11.3+cu132", "13.2", None),
        ("2.12.0", "13.0", "torch 2.12.0 with CUDA 13"),
        ("2.11.0+cu128", "12.8", "torch 2.11.0+cu128 with CUDA 12"),
        ("2.11.0+cpu", None, "torch 2.11.0+cpu with no CUDA"),
        (None, None, "there is no torch in this Python. This wheel needs torch 2.11 with CUDA 13"),
    ],
)
def test_torch_versions(version, cuda, problem):
    found = _built_for.torch_problem(WHEEL, version, cuda)
    assert problem in found if problem else found is None


def test_pyarrow_versions(tmp_path):
    assert "there is no pyarrow" in _built_for.pyarrow_problem(WHEEL, None)
    assert "and this Python has one without libarrow in" in _built_for.pyarrow_problem(WHEEL, tmp_path)
    (tmp_path / "libarrow.so.2400").touch()
    assert "built for pyarrow 25, and this Python has pyarrow 24 in" in _built_for.pyarrow_problem(WHEEL, tmp_path)
    (tmp_path / "libarrow.so.2500").touch()
    assert _built_for.pyarrow_problem(WHEEL, tmp_path) is None


def test_processors(tmp_path):
    cpuinfo = tmp_path / "cpuinfo"
    assert _built_for.processor_problem(WHEEL, cpuinfo) is None
    cpuinfo.write_text("model name\t: X\nflags\t\t: sse fma avx2 avx512f\n")
    assert _built_for.processor_problem(WHEEL, cpuinfo) is None
    cpuinfo.write_text("model name\t: X\nflags\t\t: sse fma\n")
    assert "a processor with avx2, which" in _built_for.processor_problem(WHEEL, cpuinfo)


def test_verbs_without_torch_are_those_of_the_binary_alone():
    entries = re.findall(r'\{"(\w+)", (\w+), (?:nullptr|")', (ROOT / "src/cli/main.cpp").read_text())
    assert len(entries) >= 10
    assert set(_command_line.WITHOUT_TORCH) == {name for name, verb in entries if verb != "nullptr"}
