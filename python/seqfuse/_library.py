"""Loads the libraries: libseqfuse_ops.so (torch.ops.seqfuse.*) and libseqfuse_decoder.so (torch.classes.seqfuse.*)."""

import functools
import os
import pathlib

from seqfuse import _built_for

try:
    import torch
except ModuleNotFoundError as error:
    missing = _built_for.torch_problem(_built_for.read(), None, None) if _built_for.read() else str(error)
    raise ImportError(f"seqfuse: {missing}") from error

_OPERATORS, _DECODER = "libseqfuse_ops.so", "libseqfuse_decoder.so"


def load() -> pathlib.Path:
    """Loads the operators' library of this package, or the one that SEQFUSE_LIBRARY names, and returns its path.

    Raises ImportError, which says what to do, if the library is missing or does not match the installed torch.
    """
    named = os.environ.get("SEQFUSE_LIBRARY")
    path = pathlib.Path(named or pathlib.Path(__file__).parent / "lib" / _OPERATORS)
    wheel = None if named else _built_for.read()
    if wheel:
        problem = _built_for.processor_problem(wheel) or _built_for.torch_problem(
            wheel, torch.__version__, torch.version.cuda
        )
        if problem:
            raise ImportError(f"seqfuse: {problem}")
    if not path.is_file():
        raise ImportError(
            f"seqfuse: there is no {path}. Install the package from the repository (`pip install .` in the Python that "
            f"has torch), or name a built library: SEQFUSE_LIBRARY=build/lib/{_OPERATORS}"
        )
    _load(path)
    return path


@functools.cache
def load_decoder(operators: pathlib.Path) -> None:
    """Loads the library of Encoder, GPTNeoX and DynamicEmbedding, beside the other. Raises ImportError as load does."""
    path = operators.with_name(_DECODER)
    if not path.is_file():
        raise ImportError(
            f"seqfuse: there is no {path}: the package was built without Encoder, GPTNeoX and DynamicEmbedding, which "
            "need the header nlohmann/json.hpp. Install it (`apt-get install nlohmann-json3-dev`), then run `pip "
            "install --force-reinstall --no-deps .` in the repository"
        )
    _load(path)


def _load(path: pathlib.Path) -> None:
    try:
        torch.ops.load_library(str(path))
    except OSError as error:
        raise ImportError(
            f"seqfuse: {path} does not load with torch {torch.__version__}: {error}. The library must be built for the "
            "installed torch: run `pip install --force-reinstall --no-deps .` in the repository"
        ) from error
