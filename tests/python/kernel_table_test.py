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
for call in (3, 4):
    name = f"seqfuse::norm, seq = {{call}}, op_id = 7" if renamed else "plain(int)"
    print(f'"{{call}}","{{name}}","1000"')
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
    assert lines[2] == "| LN1 | `seqfuse::add_norm` | 2 | 2.00 | 4.0 | 57.1 % |"
    assert lines[3] == "| (none) | `plain` | 1 | 1.00 | 1.0 | 14.3 % |"
    assert lines[4] == "| seqfuse::norm | `plain` | 2 | 1.00 | 2.0 | 28.6 % |"


def test_other_metrics_have_columns(tmp_path):
    ncu = tmp_path / "ncu"
    ncu.write_text(
        f"#!{sys.executable}\n"
        """print('"ID","Kernel Name","gpu__time_duration.sum","dram__bytes.sum","launch__registers_per_thread"')
print('"","","us","Kbyte","register/thread"')
print('"0","plain(int)","3","500","40"')
print('"1","plain(int)","1","2,500","80"')
"""
    )
    ncu.chmod(0o755)
    lines = run(str(ncu)).stdout.splitlines()
    assert lines[0].endswith("| share | MB each | registers |")
    assert lines[2] == "| (none) | `plain` | 2 | 2.00 | 4.0 | 100.0 % | 1 | 50 |"


def test_says_what_is_missing(tmp_path):
    assert "there is no /no/such/ncu" in run("/no/such/ncu").stderr
    empty = tmp_path / "ncu"
    empty.write_text("#!/bin/sh\necho nothing\n")
    empty.chmod(0o755)
    assert "has no kernels" in run(str(empty)).stderr
