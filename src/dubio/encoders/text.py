"""Text to token indices, by the one tokeniser and a vocabulary from the training split.

A text is brought to Unicode's composed form (NFC) and lower case, then cut into

* words: runs of letters, with an apostrophe inside (``don't`` is one token),
* numbers: runs of digits, with points and commas inside (``1,000.5`` is one token),
* single Han, Hiragana and Katakana characters, because those scripts put no spaces between words,
* every other visible character by itself (``!``, ``<``, ``_``).

White space separates and is never a token. The vocabulary holds the most frequent words of the training split, and of
nothing else.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from dubio.core.errors import UserError
from dubio.core.specs import added, part
from dubio.core.types import PADDING_WORD, UNKNOWN_WORD, Examples, Inputs
from dubio.core.validate import Positive
from dubio.encoders.rows import Encoding, JsonFields, TokenRows

_SINGLE = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
_WORD = rf"[^\W\d_{_SINGLE}]+"
TOKEN = re.compile(rf"{_WORD}(?:['\u2019]{_WORD})*|\d+(?:[.,]\d+)*|[^\s]")
"""The pattern of one token, after lower-casing."""


def tokenise(text: str) -> list[str]:
    """Return the tokens of a text in order; an empty list for a text without a visible character."""
    return TOKEN.findall(unicodedata.normalize("NFC", text).lower())


PAD = 0
"""The index that pads a batch; of words, ``PADDING_WORD`` alone has it."""

UNK = 1
"""The index of every word that is not in the vocabulary."""

FIRST_WORD = 2
"""The index of the most frequent word."""


def most_frequent(texts: Iterable[list[str]], *, limit: int, min_frequency: int) -> tuple[str, ...]:
    """Return the vocabulary, most frequent words first, equally frequent ones in alphabetical order.

    Args:
        texts: The tokens of every training text.
        limit: Largest number of words, without PAD and UNK.
        min_frequency: Smallest number of occurrences of a word in the training texts.
    """
    counts = Counter(token for tokens in texts for token in tokens)
    for word in (PADDING_WORD, UNKNOWN_WORD):
        del counts[word]  # a counter deletes what it does not have in silence
    frequent = [(-count, word) for word, count in counts.items() if count >= min_frequency]
    return tuple(word for _, word in sorted(frequent)[:limit])


@part("text-encoding")
@dataclass(frozen=True)
class TextEncoding(Encoding):
    """How texts become tokens.

    Attributes:
        vocabulary: Largest number of words, without PAD and UNK.
        min_frequency: Smallest number of occurrences of a word in the training split.
        max_length: Largest number of tokens of a text, from its beginning.
        vocabulary_from_all_text: Erratum of the text paper's code: the vocabulary comes from all in-domain splits, the
            test set included.
    """

    vocabulary: Positive = 20_000
    min_frequency: Positive = 3
    max_length: Positive = 256
    vocabulary_from_all_text: bool = added(False)

    @property
    def learns_from_all(self) -> bool:
        """Whether the vocabulary comes from all in-domain splits."""
        return self.vocabulary_from_all_text

    def fit(self, train: Examples) -> TextEncoder:
        """Return the encoder whose vocabulary comes from the examples.

        Raises:
            UserError: When no word is frequent enough.
        """
        texts = (tokenise(text) for text in texts_of(train.inputs))
        vocabulary = most_frequent(texts, limit=self.vocabulary, min_frequency=self.min_frequency)
        if not vocabulary:
            reason = f"none of the {len(train)} training texts has a word that frequent; give a lower one"
            raise UserError(f"min_frequency {self.min_frequency} leaves no word: {reason}.")
        return TextEncoder(self, vocabulary)


@dataclass(frozen=True)
class TextEncoder(JsonFields):
    """Texts to rows of token indices.

    Attributes:
        encoding: The encoding that was fitted.
        words: The vocabulary, most frequent first; the index of ``words[i]`` is ``i + 2``.
    """

    kind: ClassVar[str] = "text"

    encoding: TextEncoding
    words: tuple[str, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """(size of the vocabulary with PAD and UNK,)."""
        return (len(self.words) + FIRST_WORD,)

    @cached_property
    def _index(self) -> dict[str, int]:
        return {PADDING_WORD: PAD} | {word: index for index, word in enumerate(self.words, start=FIRST_WORD)}

    def encode(self, examples: Examples) -> TokenRows:
        """Return token indices; a text without a token becomes the one token of unknown words."""
        look_up, limit = self._index.get, self.encoding.max_length
        flat: list[int] = []
        offsets = [0]
        for text in texts_of(examples.inputs):
            flat.extend([look_up(token, UNK) for token in tokenise(text)[:limit]] or [UNK])
            offsets.append(len(flat))
        return TokenRows(np.array(flat, dtype=np.int32), np.array(offsets, dtype=np.int64))


def texts_of(inputs: Inputs) -> tuple[str, ...]:
    """Return texts.

    Raises:
        UserError: For inputs that are no texts.
    """
    if not isinstance(inputs, tuple):
        raise UserError(f"a text encoder needs texts; given an array of shape {inputs.shape}.")
    return inputs
