"""The one tokeniser: every text that dubio turns into tokens goes through here.

A text is brought to Unicode's composed form (NFC) and lower case, then cut into

* words: runs of letters, with an apostrophe inside (``don't`` is one token),
* numbers: runs of digits, with points and commas inside (``1,000.5`` is one token),
* single Han, Hiragana and Katakana characters, because those scripts put no spaces between words,
* every other visible character by itself (``!``, ``<``, ``_``).

White space separates and is never a token.
"""

from __future__ import annotations

import re
import unicodedata

_SINGLE = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
_WORD = rf"[^\W\d_{_SINGLE}]+"
TOKEN = re.compile(rf"{_WORD}(?:['\u2019]{_WORD})*|\d+(?:[.,]\d+)*|[^\s]")
"""What one token looks like, after lower-casing."""


def tokenise(text: str) -> list[str]:
    """The tokens of a text, in order; an empty list for a text without a visible character."""
    return TOKEN.findall(unicodedata.normalize("NFC", text).lower())
