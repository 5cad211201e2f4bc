#!/usr/bin/env python3
"""Checks that files of one library, which are compiled together, share no name in anonymous namespaces, nor bring one
name from two places (using a::Model; using b::Model).

A batch of files is one translation unit (seqfuse_compile_together in cmake/options.cmake), so two such names clash, but
only if the files are in the same batch. Names are found by their form after clang-format: declarations that begin in
the first column.
"""

import collections
import pathlib
import re
import sys

SRC = pathlib.Path(__file__).resolve().parent.parent / "src"
ALONE = ("base", "masks", "ops/cpu", "ops/kernels")  # compiled file by file
OPENS = re.compile(r"^(?:inline )?namespace ([\w:]*)\s*\{$")
CLOSES = re.compile(r"^\}  // namespace\b")
DECLARES = (
    re.compile(r"^using (\w+) ="),
    re.compile(r"^(?:struct|class|enum|enum class) (\w+)"),
    re.compile(r"^(?:inline )?(?:static )?(?:constexpr|const)\b.*?(\w+)(?:\[\w*\])* ?(?:=|\{)"),
    re.compile(r"^[A-Za-z][\w:<>,&*\[\] ]*?[ &*](\w+)\("),
)
BRINGS = re.compile(r"^(?:using (?P<path>(?:\w+::)+(?P<name>\w+))|namespace (?P<alias>\w+) = (?P<of>[\w:]+));")


def names(text: str):
    """The names in anonymous namespaces, with the namespace around each, and where using brings them from."""
    around = []
    for line in text.splitlines():
        if opened := OPENS.match(line):
            around.append(opened.group(1))
        elif CLOSES.match(line):
            around.pop()
        elif brought := BRINGS.match(line):
            name = "::".join([*filter(None, around), brought["name"] or brought["alias"]])
            yield name, brought["path"] or brought["of"]
        elif "" in around and not line.startswith(("template", "TORCH_", "static_assert")):
            for form in DECLARES:
                if declared := form.match(line):
                    yield "::".join([*filter(None, around), declared.group(1)]), ""
                    break


def main() -> int:
    libraries = collections.defaultdict(lambda: collections.defaultdict(dict))
    folders = {file.parent for file in SRC.rglob("CMakeLists.txt")}
    for file in sorted(SRC.rglob("*.cpp")):
        if not str(file.relative_to(SRC)).startswith(ALONE):
            library = next(folder for folder in file.parents if folder in folders)
            for name, origin in names(file.read_text()):
                libraries[library][name][origin or file] = str(file.relative_to(SRC))
    clashes = [
        f"src/{', '.join(files.values())}: {name} is in several files that are compiled as one; give each its own name"
        for found in libraries.values()
        for name, files in found.items()
        if len(files) > 1
    ]
    print("\n".join(clashes) if clashes else "names: no clash between files that are compiled together")
    return 1 if clashes else 0


sys.exit(main())
