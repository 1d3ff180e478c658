"""Made-up texts with the lengths and the word frequencies of real ones."""

from __future__ import annotations

import numpy as np

from dubio.encoders import TokenRows


def zipf_texts(count: int, *, vocabulary: int, mean_length: float, spread: float, longest: int, seed: int) -> TokenRows:
    """Log-normal lengths, words by Zipf's law; ids 2 and up, as PAD and UNK are 0 and 1."""
    generator = np.random.default_rng(seed)
    scale = np.log(mean_length) - spread**2 / 2
    lengths = np.clip(np.rint(generator.lognormal(scale, spread, size=count)), 1, longest).astype(np.int64)
    weights = 1.0 / np.arange(1, vocabulary - 1)
    tokens = generator.choice(vocabulary - 2, size=lengths.sum(), p=weights / weights.sum()) + 2
    return TokenRows(tokens.astype(np.int32), np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64))


def clinc_like(count: int, seed: int = 0) -> TokenRows:
    """CLINC150's training texts: 2,196 entries in the vocabulary, 8.5 words on average, at most 28."""
    return zipf_texts(count, vocabulary=2196, mean_length=8.5, spread=0.42, longest=28, seed=seed)


def review_like(count: int, seed: int = 0) -> TokenRows:
    """Film reviews cut to 250 words: 20,000 entries in the vocabulary, about 170 words on average."""
    return zipf_texts(count, vocabulary=20_000, mean_length=190, spread=0.6, longest=250, seed=seed)
