"""What a wheel of tools/wheel was built for, and what the environment lacks of it.

libtorch and Arrow have no stable C++ interface, so a wheel runs with one release of each. It never installs or replaces
them. This file imports neither torch nor the rest of the package: the command line uses it before it starts.
"""

import json
import pathlib
import re

_NEEDED = pathlib.Path(__file__).with_name("_built_for.json")
_REBUILD = "or make a wheel for it: `make wheel` in the repository, with this Python active"


def read(path: pathlib.Path = _NEEDED) -> dict | None:
    """The versions that tools/wheel wrote down; None if the package was built by `pip install .`."""
    return json.loads(path.read_text()) if path.is_file() else None


def _release(version: str) -> str:
    """2.11.0+cu130 → 2.11"""
    return ".".join(re.split(r"[.+]", version)[:2])


def _with_cuda(cuda: str | None) -> str:
    return f"CUDA {cuda.split('.')[0]}" if cuda else "no CUDA"


def torch_problem(wheel: dict, version: str | None, cuda: str | None) -> str | None:
    """What is wrong with a torch of this version and CUDA version (None: there is none); None if nothing is."""
    release, needed = _release(wheel["torch"]), f"torch {_release(wheel['torch'])} with {_with_cuda(wheel['cuda'])}"
    if version is None:
        return f"there is no torch in this Python. This wheel needs {needed}: pip install 'torch=={release}.*'"
    if _release(version) == release and _with_cuda(cuda) == _with_cuda(wheel["cuda"]):
        return None
    return (
        f"this wheel was built for {needed}, and this Python has torch {version} with {_with_cuda(cuda)}. "
        f"Install the former (pip install 'torch=={release}.*'), {_REBUILD}"
    )


def pyarrow_problem(wheel: dict, folder: pathlib.Path | None) -> str | None:
    """What is wrong with the pyarrow in this folder (None: there is none); None if nothing is."""
    release = wheel["pyarrow"].split(".")[0]
    install = f"pip install 'pyarrow=={release}.*'"
    if folder is None:
        return f"there is no pyarrow in this Python. This wheel needs pyarrow {release}: {install}"
    libraries = [path.name for path in folder.glob("libarrow.so.*")]
    if f"libarrow.so.{release}00" in libraries:
        return None
    found = ", ".join(sorted(name.removeprefix("libarrow.so.").removesuffix("00") for name in libraries))
    return (
        f"this wheel was built for pyarrow {release}, and this Python has {f'pyarrow {found}' if found else 'one'} "
        f"{'' if found else 'without libarrow '}in {folder}. Install the former ({install}), {_REBUILD}"
    )


def processor_problem(wheel: dict, cpuinfo: pathlib.Path = pathlib.Path("/proc/cpuinfo")) -> str | None:
    """Which instructions of the build this processor lacks; None if it has all, or if it does not say."""
    flags = re.search(r"^flags\s*:(.*)$", cpuinfo.read_text(), re.M) if cpuinfo.is_file() else None
    missing = [name for name in wheel["cpu_features"] if flags and name not in flags[1].split()]
    if not missing:
        return None
    return (
        f"this wheel was built for a processor with {', '.join(missing)}, which this one lacks. Make a wheel for any "
        "recent processor: `PRESET=portable make wheel` in the repository"
    )
