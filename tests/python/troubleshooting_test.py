"""Every message that docs/troubleshooting.md shows is in the sources, word for word."""

import pathlib
import re

ROOT = pathlib.Path(__file__).parents[2]
NOT_OURS = "No space left on device|libcuda.so.1|--device cuda: "  # the system's words, names and values


def source_text() -> str:
    """All sources, with adjacent string literals joined and escapes undone."""
    files = [*ROOT.glob("src/**/*.cpp"), *ROOT.glob("cmake/*.cmake"), ROOT / "tools/setup"]
    text = "\n".join(file.read_text() for file in files)
    text = text.replace("\\n", "\n").replace('\\"', '"')
    return re.sub(r'"\s*"', "", text)


def fragments(line: str) -> list[str]:
    """What a message says between its names and numbers."""
    parts = re.split(rf"…|{NOT_OURS}|\[setup\]|[():]", line)
    return [part.strip() for part in parts if len(part.strip()) >= 8]


def test_messages_are_in_the_sources():
    document = (ROOT / "docs/troubleshooting.md").read_text()
    blocks = re.findall(r"```message\n(.*?)```", document, re.S)
    assert len(blocks) >= 10
    sources = source_text()
    wanted = [fragment for block in blocks for line in block.splitlines() for fragment in fragments(line)]
    assert len(wanted) >= 20
    assert not [fragment for fragment in wanted if fragment not in sources]
