"""Runs build/bin/tokenize_tool, the C++ tokenizer behind a pipe (protocol: tests/text/tokenize_tool.cpp)."""

import pathlib
import struct
import subprocess


class TokenizeTool:
    def __init__(self, tool: str, tokenizer: pathlib.Path):
        self.command = [tool, str(tokenizer)]
        self.errors = ""

    def ask(self, request: str, contents: list[bytes]) -> list[bytes]:
        """Returns one answer per content; raises RuntimeError with the tool's message."""
        records = [request.encode() + content for content in contents]
        sent = b"".join(struct.pack("<I", len(record)) + record for record in records)
        done = subprocess.run(self.command, input=sent, capture_output=True, check=False)
        self.errors = done.stderr.decode(errors="replace")
        if done.returncode != 0:
            raise RuntimeError(self.errors)
        answers, at = [], 0
        while at < len(done.stdout):
            (length,) = struct.unpack_from("<I", done.stdout, at)
            answers.append(done.stdout[at + 4 : at + 4 + length])
            at += 4 + length
        assert len(answers) == len(contents)
        return answers

    def encode(self, texts: list[str], special: bool = True, request: str | None = None) -> list[list[int]]:
        answers = self.ask(request or ("E" if special else "e"), [text.encode() for text in texts])
        return [list(struct.unpack(f"<{len(answer) // 4}i", answer)) for answer in answers]

    def decode(self, lists: list[list[int]], request: str = "D") -> list[str]:
        packed = [struct.pack(f"<{len(ids)}i", *ids) for ids in lists]
        return [answer.decode() for answer in self.ask(request, packed)]
