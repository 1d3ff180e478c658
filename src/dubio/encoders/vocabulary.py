"""Which words a text encoder knows: the most frequent ones of the training split, and of nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

PAD = 0
"""The index that fills a batch up; no word has it, no encoded row contains it."""

UNK = 1
"""The index of every word that is not in the vocabulary."""

FIRST_WORD = 2
"""The index of the most frequent word."""


def most_frequent(texts: Iterable[list[str]], *, limit: int, min_frequency: int) -> tuple[str, ...]:
    """The words to know, most frequent first, equally frequent ones in alphabetical order.

    Args:
        texts: The tokens of every training text.
        limit: How many words at most; PAD and UNK are not counted.
        min_frequency: How often a word must occur in the training texts.
    """
    counts: Counter[str] = Counter()
    for tokens in texts:
        counts.update(tokens)
    frequent = [(-count, word) for word, count in counts.items() if count >= min_frequency]
    return tuple(word for _, word in sorted(frequent)[:limit])
