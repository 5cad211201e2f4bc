"""The C++ tokenizer against Hugging Face's package `tokenizers`: the same ids, the same texts."""

import json
import os
import random

import pytest

from random_texts import EMOJI, WORDS, random_texts
from tokenize_tool import TokenizeTool

pytest.importorskip("tokenizers", reason="the package `tokenizers` is not installed (`make setup` installs it)")
from tokenizers import (  # noqa: E402
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)
from tokenizers.trainers import BpeTrainer  # noqa: E402

TOOL = os.environ.get("SEQFUSE_TOKENIZE_TOOL")
pytestmark = pytest.mark.skipif(not TOOL, reason="SEQFUSE_TOKENIZE_TOOL does not name build/bin/tokenize_tool")

LLAMA_3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
O200K = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SPECIALS = ["<|endoftext|>", "<|pad|>", "[MASK]", "<word>", "   ", "<e\u0301>"]


def corpus() -> list[str]:
    random_ = random.Random(5)
    letters = "etaoinshrdlu"
    words = ["".join(random_.choices(letters, k=random_.randint(1, 9))) for _ in range(400)] + WORDS + EMOJI
    return [" ".join(random_.choices(words, k=30)) for _ in range(400)] + random_texts(6, 400, [])


def byte_level(**options):
    return pre_tokenizers.ByteLevel(**{"add_prefix_space": False, **options})


def trained(pre_tokenizer, decoder, normalizer=None, alphabet=None, vocab_size=900, **model) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(**model))
    if pre_tokenizer:
        tokenizer.pre_tokenizer = pre_tokenizer
    if normalizer:
        tokenizer.normalizer = normalizer
    if decoder:
        tokenizer.decoder = decoder
    special = [model["unk_token"]] if "unk_token" in model else []
    alphabet = pre_tokenizers.ByteLevel.alphabet() if alphabet is None else alphabet
    trainer = BpeTrainer(vocab_size=vocab_size, initial_alphabet=alphabet, special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator(corpus(), trainer)
    return tokenizer


def gpt2() -> Tokenizer:
    tokenizer = trained(byte_level(), decoders.ByteLevel())
    tokenizer.add_special_tokens(SPECIALS[:1])
    return tokenizer


def neox() -> Tokenizer:
    """Runs of spaces as added tokens, and NFC, as in GPT-NeoX and OLMo."""
    tokenizer = trained(byte_level(), decoders.ByteLevel(), normalizers.NFC())
    tokenizer.add_special_tokens(SPECIALS[:2])
    tokenizer.add_tokens([AddedToken(" " * n, normalized=True) for n in range(24, 1, -1)])
    tokenizer.add_tokens([AddedToken("<e\u0301>", normalized=True)])
    return tokenizer


def prefixed() -> Tokenizer:
    tokenizer = trained(byte_level(add_prefix_space=True), decoders.ByteLevel(), normalizers.NFKC())
    tokenizer.add_special_tokens(
        [AddedToken("[MASK]", lstrip=True), AddedToken("<|pad|>", rstrip=True), AddedToken("   ", special=True)]
    )
    tokenizer.add_tokens([AddedToken("<word>", single_word=True), AddedToken("the", single_word=True)])
    return tokenizer


def llama3() -> Tokenizer:
    pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(LLAMA_3), "isolated"), byte_level(use_regex=False)]
    )
    tokenizer = trained(pre_tokenizer, decoders.ByteLevel(), ignore_merges=True)
    tokenizer.add_special_tokens(["<|begin|>", *SPECIALS[:1]])
    template = processors.TemplateProcessing(
        single="<|begin|> $A", special_tokens=[("<|begin|>", tokenizer.token_to_id("<|begin|>"))]
    )
    tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), template])
    return tokenizer


def o200k() -> Tokenizer:
    pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(O200K), "removed", invert=True), byte_level(use_regex=False)]
    )
    return trained(pre_tokenizer, decoders.ByteLevel(), normalizers.NFD())


def split_behaviors() -> Tokenizer:
    """Each behaviour once, literal and \\p{Han} patterns, a class in a class, digits."""
    steps = [
        pre_tokenizers.Split(Regex(r"\p{N}{1,3}"), "isolated"),
        pre_tokenizers.Split(Regex("\\p{Han}+|[\u3040-\u309f]"), "contiguous"),
        pre_tokenizers.Split(Regex(r"[\p{P}[\p{S}$]]"), "merged_with_next"),
        pre_tokenizers.Split(Regex(r"\w+|[^\w\s]"), "merged_with_previous", invert=True),
        pre_tokenizers.Split("e", "merged_with_previous"),
        pre_tokenizers.Split(Regex("$"), "removed"),
        pre_tokenizers.Digits(individual_digits=True),
        byte_level(),
    ]
    return trained(pre_tokenizers.Sequence(steps), decoders.ByteLevel(), normalizers.NFKD())


def llama2() -> Tokenizer:
    """Characters, a whole text as one piece, bytes as tokens."""
    decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    fallback = [f"<0x{byte:02X}>" for byte in range(256)]
    tokenizer = trained(
        pre_tokenizers.Split("▁", "merged_with_next"), decoder, normalizer, ["▁", *"abcdefghijklmnopqrstuvwxyz"],
        vocab_size=4000, unk_token="<unk>", byte_fallback=True, fuse_unk=True,
    )  # fmt: skip
    described = json.loads(tokenizer.to_str())
    described["pre_tokenizer"] = None
    vocabulary = described["model"]["vocab"]
    for token in fallback:
        vocabulary[token] = len(vocabulary)
    tokenizer = Tokenizer.from_str(json.dumps(described))
    tokenizer.add_special_tokens(["<s>", "</s>", *SPECIALS[:1]])
    return tokenizer


def unknown(fuse: bool) -> Tokenizer:
    """Characters without byte fallback, and no decoder."""
    letters = list("abcdefghijklmnopqrstuvwxyz '")
    tokenizer = trained(
        pre_tokenizers.Split(Regex(r"\s+"), "contiguous"), None, None, letters, 4000, unk_token="<unk>", fuse_unk=fuse
    )
    described = json.loads(tokenizer.to_str())
    vocabulary = described["model"]["vocab"]
    merges = described["model"]["merges"]
    described["model"]["merges"] = [pair for pair in merges if all(c in letters for c in "".join(pair))]
    kept = [token for token in vocabulary if all(c in letters for c in token) or token == "<unk>"]
    described["model"]["vocab"] = {token: id_ for id_, token in enumerate(kept)}
    described["model"]["byte_fallback"] = not fuse
    return Tokenizer.from_str(json.dumps(described))


TOKENIZERS = {
    "gpt2": gpt2, "neox": neox, "prefixed": prefixed, "llama3": llama3, "o200k": o200k, "splits": split_behaviors,
    "llama2": llama2, "unknown": lambda: unknown(False), "unknown_fused": lambda: unknown(True),
}  # fmt: skip


@pytest.fixture(scope="module", params=TOKENIZERS)
def pair(request, tmp_path_factory):
    theirs = TOKENIZERS[request.param]()
    file = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    theirs.save(str(file))
    return theirs, TokenizeTool(TOOL, file)


def assert_same_ids(theirs: Tokenizer, ours: TokenizeTool, texts: list[str]) -> list[list[int]]:
    found = ours.encode(texts)
    for text, ids, expected in zip(texts, found, theirs.encode_batch(texts)):
        same = ids == expected.ids  # pytest would compare long lists at length
        assert same, f"{text[:200]!r}: {ids[:50]}, expected {expected.ids[:50]}"
    return found


def test_random_texts(pair):
    theirs, ours = pair
    texts = ["", " ", "\x00", *random_texts(1, 10_000, [*SPECIALS, "<unk>", "<s>"])]
    found = assert_same_ids(theirs, ours, texts)
    for request, skip in (("D", True), ("d", False)):
        assert ours.decode(found, request) == theirs.decode_batch(found, skip_special_tokens=skip)
    assert ours.encode(texts[:50], special=False) == [
        theirs.encode(t, add_special_tokens=False).ids for t in texts[:50]
    ]


@pytest.mark.slow
def test_every_character(pair):
    theirs, ours = pair
    characters = [chr(code) for code in range(1, 0x110000) if not 0xD800 <= code < 0xE000]
    lines = ["".join(f"a{c}1 {c}" for c in characters[i : i + 512]) for i in range(0, len(characters), 512)]
    assert_same_ids(theirs, ours, lines)


def test_random_ids_decode_alike_at_once_and_streamed(pair):
    theirs, ours = pair
    random_ = random.Random(2)
    size = theirs.get_vocab_size()
    lists = [[random_.randrange(size + 3) for _ in range(random_.randint(0, 30))] for _ in range(3000)]
    expected = theirs.decode_batch(lists)
    assert ours.decode(lists) == expected
    assert ours.decode(lists, "S") == expected


def test_decoding_undoes_encoding(tmp_path):
    theirs = gpt2()
    theirs.save(str(tmp_path / "tokenizer.json"))
    ours = TokenizeTool(TOOL, tmp_path / "tokenizer.json")
    texts = random_texts(3, 10_000, SPECIALS)
    assert ours.decode(ours.encode(texts), "d") == texts


def test_long_words(pair):
    theirs, ours = pair
    random_ = random.Random(4)
    word = "".join(random_.choices("etaoinshrdlu", k=100_000))
    assert_same_ids(theirs, ours, [word, "a" * 100_000, " " * 100_000, "!" * 100_000, "e\u0301" * 30_000])


def test_merges_as_text_and_as_pairs(tmp_path):
    described = json.loads(gpt2().to_str())
    described["model"]["merges"] = [" ".join(pair) for pair in described["model"]["merges"]]
    del described["model"]["type"]
    (tmp_path / "tokenizer.json").write_text(json.dumps(described))
    theirs = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert_same_ids(theirs, TokenizeTool(TOOL, tmp_path / "tokenizer.json"), random_texts(7, 1000, SPECIALS))
