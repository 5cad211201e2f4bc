"""The command `seqfuse` of a wheel: checks the environment, then becomes the binary in bin/.

Its libraries come from the torch and pyarrow of this Python, wherever they lie, by LD_LIBRARY_PATH. Neither of them is
imported, nor the rest of this package, so that nothing is slower than the binary alone.
"""

import importlib.util
import os
import pathlib
import runpy
import sys

PACKAGE = pathlib.Path(__file__).parent
WITHOUT_TORCH = ("doctor", "mask", "predict", "preprocess", "report", "scheme", "synthesize")


def folder_of(name: str) -> pathlib.Path | None:
    found = importlib.util.find_spec(name)
    return pathlib.Path(found.origin).parent if found and found.origin else None


def torch_version(torch: pathlib.Path | None) -> tuple[str | None, str | None]:
    if torch is None:
        return None, None
    version = runpy.run_path(str(torch / "version.py"))
    return version["__version__"], version["cuda"]


def library_folders(pyarrow: pathlib.Path, torch: pathlib.Path | None) -> list[pathlib.Path]:
    """pyarrow's, torch's and those of the CUDA packages beside torch."""
    if torch is None:
        return [pyarrow]
    cuda = {
        path.parent for name in ("libcudart", "libcublasLt") for path in torch.parent.glob(f"nvidia/*/lib/{name}.so.*")
    }
    return [pyarrow, torch / "lib", *sorted(cuda)]


def main() -> None:
    built_for = runpy.run_path(str(PACKAGE / "_built_for.py"))
    wheel = built_for["read"]()
    verb = next(iter(sys.argv[1:]), "--help")
    torch, pyarrow = folder_of("torch"), folder_of("pyarrow")
    problem = built_for["pyarrow_problem"](wheel, pyarrow)
    if not problem and not verb.startswith("-") and verb not in WITHOUT_TORCH:
        problem = built_for["torch_problem"](wheel, *torch_version(torch))
    if problem:
        sys.exit(f"seqfuse: {problem}")
    if verb == "doctor" and (lacking := built_for["torch_problem"](wheel, *torch_version(torch))):
        print(f"problem: {lacking}", file=sys.stderr)
    folders = [str(folder) for folder in library_folders(pyarrow, torch)]
    if os.environ.get("LD_LIBRARY_PATH"):
        folders.append(os.environ["LD_LIBRARY_PATH"])
    binary = PACKAGE / "bin/seqfuse"
    os.execve(binary, ["seqfuse", *sys.argv[1:]], {**os.environ, "LD_LIBRARY_PATH": ":".join(folders)})
