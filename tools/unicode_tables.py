#!/usr/bin/env python3
"""Writes src/text/unicode/unicode_tables.cpp from how Hugging Face's `tokenizers` treat each character.

usage: tools/unicode_tables.py     (needs the package `tokenizers`, and a Python whose Unicode is 14.0: 3.11;
                                    run clang-format afterwards)

Stand-ins: for characters whose general category differs from Unicode 14's, the version of the oldest PCRE2 we support.
Outside normal forms: characters that the tokenizers' NFC, NFD, NFKC and NFKD treat differently from Unicode 14.
"""

import collections
import pathlib
import sys
import unicodedata

import tokenizers
from tokenizers import Regex, normalizers, pre_tokenizers

OUTPUT = pathlib.Path(__file__).resolve().parent.parent / "src/text/unicode/unicode_tables.cpp"
CATEGORIES = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co"
CHARACTERS = [chr(code) for code in range(1, 0x110000) if not 0xD800 <= code < 0xE000]
IDEOGRAPHS = [(0x2A700, 0x2EE5F), (0x30000, 0x323AF)]  # where new ones are added
MARKS = "334 93c 3099 94d 5b0 64b e38 eb8 f71 321 327 31b 316 59a 302e 1d16d 5ae 301 315 35c 35d 345"  # one a class


def categories():
    found = {}
    for category in CATEGORIES.split():
        removed = pre_tokenizers.Split(Regex(rf"\p{{{category}}}+"), "removed")
        kept = {character for piece, _ in removed.pre_tokenize_str("".join(CHARACTERS)) for character in piece}
        found.update((character, category) for character in CHARACTERS if character not in kept)
    return collections.defaultdict(lambda: "Cn", found)


def stand_ins():
    now = categories()
    changed = [c for c in CHARACTERS if now[c] != unicodedata.category(c)]
    by = {}
    for character in CHARACTERS:  # the first character of a category and length that did not change
        key = (now[character], len(character.encode()))
        if len(character.encode()) > 2 and character != "\u180e" and now[character] == unicodedata.category(character):
            by.setdefault(key, character)
    pairs = [(ord("\u180e"), 0x200B)]
    for character in changed:
        ideograph = any(first <= ord(character) <= last for first, last in IDEOGRAPHS)
        stand_in = "\U00020000" if ideograph else by[now[character], len(character.encode())]
        pairs.append((ord(character), ord(stand_in)))
    return sorted(pairs)


def outside_normal_forms():
    found = set()
    marks = [chr(int(mark, 16)) for mark in MARKS.split()]
    for form in ("NFC", "NFD", "NFKC", "NFKD"):
        normalize = getattr(normalizers, form)().normalize_str
        found.update(ord(c) for c in CHARACTERS if normalize(c) != unicodedata.normalize(form, c))
    nfd = normalizers.NFD().normalize_str
    for character in CHARACTERS:  # combining classes: the order among marks of every other class
        text = "".join(f"a{character}{mark}b{mark}{character}" for mark in marks)
        if nfd(text) != unicodedata.normalize("NFD", text):
            found.add(ord(character))
    nfc = normalizers.NFC().normalize_str
    for character in CHARACTERS:  # the second half of a pair that is not composed
        parts = unicodedata.normalize("NFD", character)
        if len(parts) > 1 and nfc(parts) != unicodedata.normalize("NFC", parts):
            found.add(ord(parts[-1]))
    return sorted((code,) for code in found)


def ranges(rows):
    """Joins rows (code, value...) with consecutive codes and the same values."""
    joined = []
    for code, *values in rows:
        if joined and joined[-1][1] == code - 1 and joined[-1][2:] == values:
            joined[-1][1] = code
        else:
            joined.append([code, code, *values])
    return ["{" + ", ".join(f"0x{number:04X}" for number in row) + "}" for row in joined]


def main() -> int:
    if unicodedata.unidata_version != "14.0.0":
        print(f"needs a Python with Unicode 14.0.0, this one has {unicodedata.unidata_version}", file=sys.stderr)
        return 1
    OUTPUT.write_text(f"""// Written by tools/unicode_tables.py from tokenizers {tokenizers.__version__} and Unicode 14.
#include "text/unicode/unicode_tables.h"

namespace seqfuse::text {{
namespace {{

constexpr StandIn kStandIns[] = {{
{", ".join(ranges(stand_ins()))}}};

constexpr CharacterRange kOutsideNormalForms[] = {{
{", ".join(ranges(outside_normal_forms()))}}};

}}  // namespace

std::span<const StandIn> stand_ins() {{ return kStandIns; }}

std::span<const CharacterRange> outside_normal_forms() {{ return kOutsideNormalForms; }}

}}  // namespace seqfuse::text
""")
    return 0


sys.exit(main())
