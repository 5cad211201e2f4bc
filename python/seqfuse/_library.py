"""Loads libseqfuse_ops.so, which registers torch.ops.seqfuse.*"""

import os
import pathlib

import torch

_NAME = "libseqfuse_ops.so"


def load() -> pathlib.Path:
    """Loads the library next to this file, or the one that SEQFUSE_LIBRARY names, and returns its path.

    Raises ImportError, which says what to do, if the library is missing or does not match the installed torch.
    """
    path = pathlib.Path(os.environ.get("SEQFUSE_LIBRARY") or pathlib.Path(__file__).with_name(_NAME))
    if not path.is_file():
        raise ImportError(
            f"seqfuse: there is no {path}. Install the package from the repository (`pip install .` in the Python that "
            f"has torch), or name a built library: SEQFUSE_LIBRARY=build/lib/{_NAME}"
        )
    try:
        torch.ops.load_library(str(path))
    except OSError as error:
        raise ImportError(
            f"seqfuse: {path} does not load with torch {torch.__version__}: {error}. The library must be built for the "
            "installed torch: run `pip install --force-reinstall --no-deps .` in the repository"
        ) from error
    return path
