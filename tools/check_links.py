#!/usr/bin/env python3
"""Checks that all relative links and all file names in `backquotes` in the Markdown documents exist."""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)]*)?\)")


def main() -> int:
    broken = []
    documents = [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "benchmarks").rglob("*.md"),
        *(ROOT / "data").rglob("*.md"),
    ]
    for document in documents:
        for target in LINK.findall(document.read_text()):
            if "://" not in target and not (document.parent / target).exists():
                broken.append(f"{document.relative_to(ROOT)}: no such file: {target}")
    print("\n".join(broken) if broken else f"links: {len(documents)} documents, no broken links")
    return 1 if broken else 0


sys.exit(main())
