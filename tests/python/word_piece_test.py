"""The C++ tokenizer of BERT against Hugging Face's package `tokenizers`: the same ids, the same texts."""

import json
import os
import random

import pytest

from random_texts import EMOJI, WORDS, random_texts
from tokenize_tool import TokenizeTool

pytest.importorskip("tokenizers", reason="the package `tokenizers` is not installed (`make setup` installs it)")
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors  # noqa: E402
from tokenizers.implementations import BertWordPieceTokenizer  # noqa: E402
from tokenizers.trainers import WordPieceTrainer  # noqa: E402

TOOL = os.environ.get("SEQFUSE_TOKENIZE_TOOL")
pytestmark = pytest.mark.skipif(not TOOL, reason="SEQFUSE_TOKENIZE_TOOL does not name build/bin/tokenize_tool")

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
MORE_WORDS = [*WORDS, "don't", "do not", "I'm", 'said , "no"', "Ünïcödé", "İstanbul", "ΣΊΣΥΦΟΣ", "가나다", "ÅNGSTRÖM"]


def corpus() -> list[str]:
    random_ = random.Random(5)
    letters = "etaoinshrdlu"
    words = ["".join(random_.choices(letters, k=random_.randint(1, 9))) for _ in range(400)] + MORE_WORDS + EMOJI
    return [" ".join(random_.choices(words, k=30)) for _ in range(400)] + random_texts(6, 400, [])


def trained(normalizer, post_processor="template", **model) -> Tokenizer:
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]", **model))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(cleanup=post_processor == "template")
    trainer = WordPieceTrainer(vocab_size=1500, special_tokens=SPECIALS, show_progress=False)
    tokenizer.train_from_iterator(corpus(), trainer)
    cls, sep = ((token, tokenizer.token_to_id(token)) for token in ("[CLS]", "[SEP]"))
    if post_processor == "template":
        tokenizer.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[cls, sep]
        )
    else:
        tokenizer.post_processor = processors.BertProcessing(sep, cls)
    return tokenizer


def bert(**options):
    return normalizers.BertNormalizer(**options)


TOKENIZERS = {
    "uncased": lambda: trained(bert()),
    "cased": lambda: trained(bert(lowercase=False), "bert"),
    "accents": lambda: trained(bert(strip_accents=False)),
    "cased_without_accents": lambda: trained(bert(lowercase=False, strip_accents=True)),
    "not_cleaned": lambda: trained(bert(clean_text=False, handle_chinese_chars=False), max_input_chars_per_word=5),
    "not_normalized": lambda: trained(None),
}


@pytest.fixture(scope="module", params=TOKENIZERS)
def pair(request, tmp_path_factory):
    theirs = TOKENIZERS[request.param]()
    file = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    theirs.save(str(file))
    return theirs, TokenizeTool(TOOL, file)


@pytest.fixture
def count(pair):
    """10,000 texts for the most common tokenizer, fewer for its variants."""
    return 10_000 if pair[0].normalizer and pair[0].normalizer.lowercase and pair[0].normalizer.clean_text else 2_000


def texts_for(seed: int, count: int) -> list[str]:
    random_ = random.Random(seed)
    texts = random_texts(seed, count, SPECIALS)
    return [text + random_.choice(["", " ", *MORE_WORDS]) for text in texts]


def assert_same_ids(theirs: Tokenizer, ours: TokenizeTool, texts: list[str]) -> list[list[int]]:
    found = ours.encode(texts)
    for text, ids, expected in zip(texts, found, theirs.encode_batch(texts)):
        same = ids == expected.ids  # pytest would compare long lists at length
        assert same, f"{text[:200]!r}: {ids[:50]}, expected {expected.ids[:50]}"
    return found


def test_random_texts(pair, count):
    theirs, ours = pair
    texts = ["", " ", "\x00", "a" * 101, "a" * 100, *texts_for(1, count)]
    found = assert_same_ids(theirs, ours, texts)
    for request, skip in (("D", True), ("d", False)):
        assert ours.decode(found, request) == theirs.decode_batch(found, skip_special_tokens=skip)
    assert ours.encode(texts[:50], special=False) == [
        theirs.encode(t, add_special_tokens=False).ids for t in texts[:50]
    ]


def test_every_character(pair):
    theirs, ours = pair
    characters = [chr(code) for code in range(1, 0x110000) if not 0xD800 <= code < 0xE000]
    chosen = characters[:0x3400] + characters[0x3400::64]
    lines = ["".join(f"a{c}b {c}" for c in chosen[i : i + 256]) for i in range(0, len(chosen), 256)]
    assert_same_ids(theirs, ours, lines)


@pytest.mark.slow
def test_every_character_alone(pair):
    theirs, ours = pair
    characters = [chr(code) for code in range(1, 0x110000) if not 0xD800 <= code < 0xE000]
    lines = ["".join(f"a{c}b {c}" for c in characters[i : i + 256]) for i in range(0, len(characters), 256)]
    assert_same_ids(theirs, ours, lines)


def test_truncated_texts(pair):
    theirs, ours = pair
    texts = texts_for(2, 500)
    theirs.enable_truncation(8)
    expected = [encoding.ids for encoding in theirs.encode_batch(texts)]
    theirs.no_truncation()
    assert ours.encode(texts, request="t") == expected


def test_random_ids_decode_alike_at_once_and_streamed(pair):
    theirs, ours = pair
    random_ = random.Random(2)
    size = theirs.get_vocab_size()
    lists = [[random_.randrange(size + 3) for _ in range(random_.randint(0, 30))] for _ in range(2000)]
    expected = theirs.decode_batch(lists)
    assert ours.decode(lists) == expected
    assert ours.decode(lists, "S") == expected


@pytest.mark.parametrize(
    ("config", "options"),
    [
        (None, {}),
        ({"do_lower_case": False}, {"lowercase": False}),
        ({"strip_accents": False, "tokenize_chinese_chars": False},
         {"strip_accents": False, "handle_chinese_chars": False}),
    ],
)  # fmt: skip
def test_vocab_txt(tmp_path, config, options):
    vocabulary = trained(bert(**options)).get_vocab()
    tokens = sorted(vocabulary, key=vocabulary.get)
    (tmp_path / "vocab.txt").write_text("\n".join(tokens) + "\n")
    if config is not None:
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    theirs = BertWordPieceTokenizer(str(tmp_path / "vocab.txt"), **options)
    assert_same_ids(theirs, TokenizeTool(TOOL, tmp_path / "vocab.txt"), texts_for(3, 2000))
