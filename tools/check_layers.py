#!/usr/bin/env python3
"""Checks the dependence order of the layers, and where torch and CUDA headers may be included.

base < io < text < config < data < report < masks < fusion < tuning < ops < distributed < embeddings < kv_cache <
models < certify < training < serving < api < cli. No torch header in base, io, text,
config, data, report, masks, fusion, tuning, ops/kernels or ops/cpu; every header has #pragma once.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
ORDER = [
    "base",
    "io",
    "text",
    "config",
    "data",
    "report",
    "masks",
    "fusion",
    "tuning",
    "ops",
    "distributed",
    "embeddings",
    "kv_cache",
    "models",
    "certify",
    "training",
    "serving",
    "api",
    "cli",
]
TORCH_FREE = ("base", "io", "text", "config", "data", "report", "masks", "fusion", "tuning", "ops/kernels", "ops/cpu")
INCLUDE = re.compile(r'^\s*#\s*include\s+(["<])([^">]+)[">]', re.MULTILINE)
TORCH = re.compile(r"^(torch|ATen|c10|caffe2)/")


def problems(file: pathlib.Path):
    relative = file.relative_to(ROOT / "src")
    layer = relative.parts[0]
    text = file.read_text()
    if file.suffix == ".h" and "#pragma once" not in text:
        yield "no #pragma once"
    for kind, target in INCLUDE.findall(text):
        if TORCH.match(target) and str(relative).startswith(TORCH_FREE):
            yield f"includes {target}: no torch header belongs here"
        other = target.split("/")[0]
        if kind == '"' and layer in ORDER and other in ORDER and ORDER.index(other) > ORDER.index(layer):
            yield f"includes {target}: {layer} comes before {other}"


def main() -> int:
    files = [f for f in sorted((ROOT / "src").rglob("*")) if f.suffix in (".h", ".cpp", ".cu", ".cuh")]
    found = [f"{file.relative_to(ROOT)}: {problem}" for file in files for problem in problems(file)]
    print("\n".join(found) if found else f"layers: {len(files)} files in order")
    return 1 if found else 0


sys.exit(main())
