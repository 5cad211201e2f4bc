"""tools/kernel_table on what a stand-in for ncu prints."""

import os
import pathlib
import subprocess
import sys

TOOL = pathlib.Path(__file__).resolve().parents[2] / "tools/kernel_table"
NCU = """#!{python}
import sys
renamed = sys.argv[sys.argv.index("--print-nvtx-rename") + 1] == "kernel"
kernel = '"void seqfuse::(anonymous namespace)::add_norm<float, 4>(float const*, int)"'
print('==PROF== a message')
print('"ID","Kernel Name","gpu__time_duration.sum"')
print('"","","ns"')
print('"0",' + ('"LN1"' if renamed else kernel) + ',"1,500"')
print('"1",' + ('"LN1"' if renamed else kernel) + ',"2500"')
print('"2","plain(int)","1000"')
"""


def run(ncu: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, TOOL, "capture.ncu-rep"],
        capture_output=True,
        text=True,
        env={**os.environ, "NCU": ncu},
        check=False,
    )


def test_sums_by_range_and_kernel(tmp_path):
    ncu = tmp_path / "ncu"
    ncu.write_text(NCU.format(python=sys.executable))
    ncu.chmod(0o755)
    lines = run(str(ncu)).stdout.splitlines()
    assert lines[2] == "| LN1 | `seqfuse::add_norm` | 2 | 2.00 | 4.0 | 80.0 % |"
    assert lines[3] == "| (none) | `plain` | 1 | 1.00 | 1.0 | 20.0 % |"


def test_says_what_is_missing(tmp_path):
    assert "there is no /no/such/ncu" in run("/no/such/ncu").stderr
    empty = tmp_path / "ncu"
    empty.write_text("#!/bin/sh\necho nothing\n")
    empty.chmod(0o755)
    assert "has no kernels" in run(str(empty)).stderr
