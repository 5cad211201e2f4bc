"""Texts that are hard to tokenize: every plane of Unicode, joined emoji, white space, digits, contractions."""

import random

SCRIPTS = [  # first and last code point
    (0x20, 0x7E), (0xA0, 0x24F), (0x300, 0x36F), (0x370, 0x3FF), (0x400, 0x4FF), (0x590, 0x5FF), (0x600, 0x6FF),
    (0x900, 0x97F), (0xE00, 0xE7F), (0x1100, 0x11FF), (0x1680, 0x180F), (0x1C80, 0x1CFF), (0x2000, 0x206F),
    (0x2150, 0x218F), (0x2E80, 0x2FFF), (0x3040, 0x30FF), (0x4E00, 0x4FFF), (0xA720, 0xA7FF), (0xAC00, 0xAD00),
    (0xE000, 0xE020), (0xF900, 0xFAFF), (0xFE00, 0xFE6F), (0xFF00, 0xFFFF), (0x10D40, 0x10D8F), (0x11380, 0x113E2),
    (0x11F00, 0x11F5A), (0x16100, 0x16139), (0x1CC00, 0x1CCFF), (0x1D400, 0x1D7FF), (0x1E030, 0x1E08F),
    (0x1F000, 0x1FAFF), (0x20000, 0x20040), (0x2EBF0, 0x2EE5D), (0x30000, 0x323AF), (0xE0000, 0xE01EF),
    (0xF0000, 0xF0010), (0x10FF00, 0x10FFFF),
]  # fmt: skip
SPACES = " \u00a0\u1680\u180e\u2003\u2028\u2029\u202f\u205f\u3000\u200b\u0085\ufeff\t\n\r\v\f"
EMOJI = ["👩‍👩‍👧‍👦", "🏳️‍🌈", "👍🏽", "🇩🇪🇫🇷", "❤️", "1️⃣", "🧑🏿‍🚀"]
WORDS = [
    "the", "model", "can't", "won't", "I'll", "we've", "it's", "they're", "I'M", "IT'S", "ſ", "'ſ", "naïve", "Straße",
    "Ǆ", "ŉ", "北京", "שלום", "مرحبا", "สวัสดี", "हिन्दी", "e\u0301", "ﬁne", "Å", "½", "Ⅷ", "²",
]  # fmt: skip
BASES = "aAα\u0915\u1100\uac00"  # marks are put on them


def characters(random_: random.Random, first: int, last: int, count: int) -> str:
    codes = (random_.randint(first, last) for _ in range(count))
    return "".join(chr(code) for code in codes if not 0xD800 <= code < 0xE000)


def piece(random_: random.Random, specials: list[str]) -> str:
    count = random_.choice((1, 1, 2, 3, 8))
    makers = [
        lambda: characters(random_, *random_.choice(SCRIPTS), count),
        lambda: characters(random_, *random_.choice(SCRIPTS), count),
        lambda: characters(random_, 1, 0x10FFFF, count),
        lambda: characters(random_, 0, 31, count),
        lambda: random_.choice(BASES) + characters(random_, 0x300, 0x36F, count),
        lambda: random_.choice(EMOJI),
        lambda: "".join(random_.choices(SPACES, k=count)),
        lambda: random_.choice(" \n\t") * random_.randint(1, 30),
        lambda: str(random_.randrange(10 ** random_.randint(1, 12))),
        lambda: random_.choice(specials or WORDS),
        lambda: random_.choice((" ", "", " ", "\n")) + random_.choice(WORDS),
    ]
    return random_.choice(makers)()


def random_texts(seed: int, count: int, specials: list[str]) -> list[str]:
    random_ = random.Random(seed)
    return ["".join(piece(random_, specials) for _ in range(random_.randint(0, 12))) for _ in range(count)]
