#!/usr/bin/env python3
"""Checks the dependence order of the layers and of their folders, and where torch headers may be included.

base < io < text < metrics < config < data < report < masks < fusion < tuning < ops < distributed < embeddings <
kv_cache < models < certify < training < serving < api < cli. Folders of a layer are in the order of FOLDERS; in the
other layers no two folders may include each other. No torch header in base, io, text, metrics, config, data, report,
masks, fusion, tuning, ops/kernels or ops/cpu; every header has #pragma once.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
ORDER = [
    "base",
    "io",
    "text",
    "metrics",
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
FOLDERS = {
    "data": ["read", "dataset", "batch", "ingest", "export", "synthesize"],
    "models": ["common", "hstu", "files", "bert", "gpt_neox"],
    "ops": ["kernels", "cpu", "torch"],
    "training": ["evaluation", "optimizer", "checkpoint", "device", "profile", "loop"],
}
TORCH_FREE = (
    *("base", "io", "text", "metrics", "config", "data", "report", "masks", "fusion", "tuning"),
    *("ops/kernels", "ops/cpu"),
)
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


def folder_problems(files):
    """Includes between folders of a layer that are against FOLDERS, or go both ways where it has no order."""
    seen = {}  # (layer, folder, other folder): one include
    for file in files:
        layer, *middle, _ = file.relative_to(ROOT / "src").parts
        for kind, target in INCLUDE.findall(file.read_text()):
            other_layer, *other, _ = target.split("/") if "/" in target else ("", "")
            if kind == '"' and layer == other_layer and middle[:1] != other[:1]:
                key = (layer, middle[0] if middle else ".", other[0] if other else ".")
                seen.setdefault(key, f"{file.relative_to(ROOT)}: includes {target}")
    for (layer, folder, other), include in seen.items():
        order = FOLDERS.get(layer, [])
        if order and not {folder, other} <= {*order}:
            yield f"{include}: FOLDERS of tools/check_layers.py lacks {layer}/{folder} or {layer}/{other}"
        elif order and order.index(other) > order.index(folder):
            yield f"{include}: {layer}/{folder} comes before {layer}/{other}"
        elif not order and folder < other and (layer, other, folder) in seen:
            yield f"{include}: and {seen[layer, other, folder]}: these folders include each other"


def main() -> int:
    files = [f for f in sorted((ROOT / "src").rglob("*")) if f.suffix in (".h", ".cpp", ".cu", ".cuh")]
    found = [f"{file.relative_to(ROOT)}: {problem}" for file in files for problem in problems(file)]
    found += folder_problems(files)
    print("\n".join(found) if found else f"layers: {len(files)} files in order")
    return 1 if found else 0


sys.exit(main())
