"""Choose the rows of a test split to show as examples: telling ones of every method, then a random sample.

The runner stores rows by these rules while it has the data; the report chooses by the same rules among those stored.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dubio.core.predictions import Predictions
from dubio.core.types import IntArray
from dubio.metrics.decisions import predicted, predicted_labels
from dubio.metrics.quantities import extreme_rows, uncertainty
from dubio.reporting.measures import REFERRED_BY

MOST_EXAMPLES = 300
"""Largest number of examples of a split that are stored at once."""

EXTREMES = 6
"""Rows of each kind and method, and rows on which methods disagree."""

TAGS = {
    "sure_wrong": "confident wrong",
    "unsure_wrong": "uncertain wrong",
    "unsure_right": "uncertain right",
    "sure_right": "confident right",
}
"""The lists of :class:`dubio.metrics.quantities.Extremes` → their tags, the most important first."""

CERTAIN_OOD = "most certain OOD"
"""The tag of OOD and shifted rows of lowest uncertainty."""

TELLING = 2 / 3
"""Largest share of the rows that are chosen for what methods answer; the others are a random sample."""


def telling_rows(predictions: Predictions) -> dict[str, IntArray]:
    """Return tag → the rows that have it, the most extreme first: by predictive entropy over the whole split."""
    extremes = extreme_rows(predictions, count=EXTREMES, quantity=REFERRED_BY)
    outside = np.flatnonzero(predictions.ood)
    order = np.argsort(uncertainty(predictions, REFERRED_BY)[outside], kind="stable")
    return {tag: getattr(extremes, name) for name, tag in TAGS.items()} | {CERTAIN_OOD: outside[order[:EXTREMES]]}


def answer_keys(predictions: Predictions) -> NDArray[Any]:
    """Return one value per row, equal where two methods give the same answer: the class, or the set of labels."""
    if predictions.target != "multilabel":
        return predicted(predictions)
    packed = np.packbits(predicted_labels(predictions), axis=1)
    return packed.view(np.dtype((np.void, packed.shape[1]))).ravel()


def disputed_rows(answers: Sequence[NDArray[Any]]) -> IntArray:
    """Return the rows on which methods disagree most: the first method against the largest share of the others."""
    if len(answers) < 2:
        return np.empty(0, dtype=np.int64)
    against = sum(other != answers[0] for other in answers[1:])
    votes = np.minimum(against, len(answers) - against)
    order = np.argsort(-votes, kind="stable")[:EXTREMES]
    return np.asarray(order[votes[order] > 0])


def stratified_order(labels: IntArray, fingerprint: str) -> IntArray:
    """Return all rows in a random order whose every beginning has the same number of each label, as far as there are.

    Args:
        labels: Class index ``[N]``, −1 for none; of several labels, multi-hot ``[N, K]``, the first one counts.
        fingerprint: Identifies the split: its hash is the seed.
    """
    if labels.ndim == 2:
        labels = np.where(labels.any(axis=1), labels.argmax(axis=1), -1)
    seed = int.from_bytes(sha256(fingerprint.encode()).digest()[:8], "big")
    order = np.random.default_rng(seed).permutation(len(labels))
    grouped = order[np.argsort(labels[order], kind="stable")]
    _, starts, sizes = np.unique(labels[grouped], return_index=True, return_counts=True)
    turns = np.empty(len(labels), dtype=np.int64)
    turns[grouped] = np.arange(len(labels)) - np.repeat(starts, sizes)
    return order[np.argsort(turns[order], kind="stable")]


def choose_rows(telling: Sequence[IntArray], sample: IntArray, count: int) -> IntArray:
    """Return at most ``count`` rows, ascending: the first of every list, the second of every list …, then the sample.

    Args:
        telling: Lists of rows, the most important list first; at most :data:`TELLING` of the rows come from them,
            unless the sample is too small.
        sample: Rows in the order of the sample.
        count: Largest number of rows.
    """
    rounds = itertools.zip_longest(*(rows.tolist() for rows in telling))
    extremes = list(dict.fromkeys(row for turn in rounds for row in turn if row is not None))
    first = extremes[: int(count * TELLING)]
    rows = dict.fromkeys([*first, *sample[:count].tolist(), *extremes])
    return np.sort(np.array(list(rows)[:count], dtype=np.int64))


def rows_to_store(systems: Iterable[Predictions], labels: IntArray, fingerprint: str) -> list[int]:
    """Return the rows of a split that say most about some systems, and a random sample; :data:`MOST_EXAMPLES` at most.

    Args:
        systems: The predictions of each, read one after the other.
        labels: As of :func:`stratified_order`.
        fingerprint: Likewise.
    """
    telling: list[IntArray] = []
    answers: list[NDArray[Any]] = []
    for predictions in systems:
        telling += telling_rows(predictions).values()
        answers.append(answer_keys(predictions))
    sample = stratified_order(labels, fingerprint)
    rows: list[int] = choose_rows([disputed_rows(answers), *telling], sample, MOST_EXAMPLES).tolist()
    return rows
