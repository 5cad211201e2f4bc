#!/usr/bin/env python3
"""Times the encoding of a text by build/bin/tokenize_tool and by the package `tokenizers`, one thread each.

usage: benchmarks/text/tokenizer_speed.py TOOL TOKENIZER.json TEXT     (prints one line of JSON; ids must be equal)
"""

import json
import os
import pathlib
import sys
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
import tokenizers  # noqa: E402

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests/python"))
from tokenize_tool import TokenizeTool  # noqa: E402


def main() -> int:
    if len(sys.argv) != 4:
        print(__doc__, file=sys.stderr)
        return 2
    tool, file, text_file = sys.argv[1:]
    content = pathlib.Path(text_file).read_bytes()
    ours = TokenizeTool(tool, pathlib.Path(file))
    (answer,) = ours.ask("T", [content])
    seconds = float(ours.errors)

    theirs = tokenizers.Tokenizer.from_file(file)
    text = content.decode()
    best = {}
    for name, encode in (("encode", theirs.encode), ("encode_batch_fast", lambda t: theirs.encode_batch_fast([t])[0])):
        best[name] = float("inf")
        for _ in range(3):
            start = time.process_time()
            ids = encode(text).ids
            best[name] = min(best[name], time.process_time() - start)
    assert list(memoryview(answer).cast("i")) == ids, "the ids differ"
    megabytes = len(content) / 1e6
    result = {"text_mb": megabytes, "tokens": len(ids), "seqfuse_mb_per_s": megabytes / seconds}
    result.update({f"tokenizers_{name}_mb_per_s": megabytes / value for name, value in best.items()})
    print(json.dumps({key: round(value, 2) for key, value in result.items()}))
    return 0


sys.exit(main())
