"""Logistic regression on TF-IDF weights of texts, on the columns of tables, and on the pixels of images.

Texts: words and pairs of neighbouring words that occur in at least two training texts, the :data:`MOST_TERMS` most
frequent; weights (1 + ln tf) · (ln((1 + N) / (1 + df)) + 1), each text scaled to length 1. This is scikit-learn's
TfidfVectorizer with ``ngram_range=(1, 2)``, ``min_df=2`` and ``sublinear_tf=True``, on dubio's tokens.
Images: the standardised channels, averaged over blocks to at most :data:`SIDE` pixels a side. Tables: the standardised
columns.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dubio.core.specs import part
from dubio.core.types import FloatArray, IntArray
from dubio.encoders import Encoded, TokenRows
from dubio.encoders.text import FIRST_WORD
from dubio.methods.estimator import Arrays, Estimator, Labelled, Report, Stored

MOST_TERMS = 20_000

SIDE = 16

BLOCK = 1024
"""Images that are averaged at a time."""

FACTOR, MOST_STEPS = 10.0, 2
"""The search for C goes by this factor, at most that number of steps in one direction."""

GAIN = 0.01
"""The least fall of the NLL, as a fraction, for which the search goes on."""

FEW, FOLDS = 2_000, 5

ITERATIONS = 200

PAIR = 1 << 31
"""The key of a word is its index, that of a pair of words PAIR · first + second."""


@part("logistic-regression")
@dataclass(frozen=True)
class LogisticRegression(Estimator):
    """Multinomial logistic regression with an L2 penalty; of several labels, one regression each.

    scikit-learn's C, the inverse strength of the penalty, is a power of ten, one for all labels, chosen by NLL: of
    tables and images with at most :data:`FEW` training rows on folds of them, since a small validation split would
    often choose hardly any penalty; otherwise on validation.
    """

    rate: ClassVar[float] = 2e-5

    def fit(self, train: Labelled, val: Labelled, report: Report) -> tuple[Arrays, dict[str, Any]]:
        """Return weights and intercepts, and the terms of texts."""
        terms = fit_terms(train.rows) if isinstance(train.rows, TokenRows) else {}
        features, val_features = features_of(terms, train.rows), features_of(terms, val.rows)
        fits: dict[float, Arrays] = {}
        few = len(train.labels) <= FEW and not terms  # the terms of a text would have seen what is held out
        held_out = _folds(train.labels) if few or not len(val.labels) else []

        def nll(c: float) -> float:
            report(len(fits) / (2 + MOST_STEPS), f"C = {c:g}")
            fits[c] = solve(features, train, c, fits[next(reversed(fits))] if fits else None)
            if held_out:
                return float(np.concatenate([_held_out_losses(features, train, rows, c) for rows in held_out]).mean())
            return float(val.losses(linear_scores(fits[c], val_features)).mean()) if len(val.labels) else 0.0

        chosen = _search(nll, 10.0 if terms else 10.0 ** round(math.log10(100 / len(train.labels))))
        return {**terms, **fits[chosen]}, {"c": chosen, "c_tried": sorted(fits)}

    def scores(self, arrays: Stored, rows: Encoded) -> FloatArray:
        """Return the logits of the fitted classes."""
        return linear_scores(arrays, features_of(arrays, rows))


def _search(nll: Callable[[float], float], first: float) -> float:
    """Return C: up from the first while the NLL falls by more than :data:`GAIN`; where it does not, down likewise."""
    best, lowest = first, nll(first)
    for factor in (FACTOR, 1 / FACTOR):
        for step in range(1, MOST_STEPS + 1):
            if (score := nll(first * factor**step)) > (1 - GAIN) * lowest:
                break
            best, lowest = first * factor**step, score
        if best != first:
            break
    return best


def _folds(labels: IntArray) -> list[NDArray[np.bool_]]:
    """Return the rows that each of :data:`FOLDS` folds holds out; every class (set of labels) is divided evenly.

    Rows of a class with few examples are never held out, so that each fold has all classes to fit; none where all
    classes are that small.
    """
    kinds = np.unique(labels, axis=0, return_inverse=True)[1].ravel()
    order = np.argsort(kinds, kind="stable")
    rank = np.empty(len(kinds), dtype=np.int64)
    rank[order] = np.arange(len(kinds)) - np.searchsorted(kinds[order], kinds[order])
    removable = np.bincount(kinds)[kinds] >= 2 * FOLDS
    return [removable & (rank % FOLDS == fold) for fold in range(FOLDS)] if removable.any() else []


def _held_out_losses(features: Any, data: Labelled, held_out: NDArray[np.bool_], c: float) -> FloatArray:
    """Return the losses of held-out rows under a fit to the others."""
    within, outside = (Labelled(data.rows, data.labels[rows], data.classes) for rows in (~held_out, held_out))
    return outside.losses(linear_scores(solve(features[~held_out], within, c, None), features[held_out]))


def solve(features: Any, data: Labelled, c: float, start: Arrays | None) -> Arrays:
    """Return ``weights [D, K]`` and ``intercept [K]``, of two classes and of labels ``K`` log odds.

    Of two classes the first has weights 0. A multinomial fit begins at ``start``.
    """
    from sklearn import linear_model
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a baseline that stops after its iterations is still one
        if data.multilabel or data.classes == 2:
            columns = data.labels.T if data.multilabel else [data.labels]
            # liblinear penalises the intercept, scaled: hardly
            fits = [
                linear_model.LogisticRegression(C=c, solver="liblinear", tol=0.01, intercept_scaling=10.0)
                .fit(features, column)
                for column in columns
            ]  # fmt: skip
            weights = np.concatenate([fit.coef_ for fit in fits])
            intercept = np.concatenate([fit.intercept_ for fit in fits])
            if not data.multilabel:
                weights, intercept = np.concatenate((0 * weights, weights)), np.append(0.0, intercept)
        else:
            fit = linear_model.LogisticRegression(C=c, max_iter=ITERATIONS, warm_start=True)
            if start is not None:
                fit.coef_, fit.intercept_ = start["weights"].T.copy(), start["intercept"].copy()
            fit.fit(features, data.labels)
            weights, intercept = fit.coef_, fit.intercept_
    return {"weights": np.ascontiguousarray(weights.T, dtype=np.float64), "intercept": intercept.astype(np.float64)}


def linear_scores(arrays: Stored, features: Any) -> FloatArray:
    """Return features · weights + intercept, ``[N, K]``."""
    scores: FloatArray = features @ arrays["weights"] + arrays["intercept"]
    return scores


# Features.


def features_of(terms: Stored, rows: Encoded) -> Any:
    """Return the features of examples, float64 ``[N, D]``: sparse for texts, otherwise an array."""
    if isinstance(rows, TokenRows):
        return tfidf(terms, rows)
    blocks = [np.arange(start, min(len(rows), start + BLOCK)) for start in range(0, len(rows), BLOCK)]
    flat = [_shrunk(rows.at(block).astype(np.float64)).reshape(len(block), -1) for block in blocks]
    return np.concatenate(flat) if flat else np.empty((0, 0))


def _shrunk(values: FloatArray) -> FloatArray:
    """Return images ``[N, C, H, W]`` averaged over equal blocks to at most :data:`SIDE` a side; tables unchanged."""
    if values.ndim < 4 or max(values.shape[2:]) <= SIDE:
        return values
    size = -(-max(values.shape[2:]) // SIDE)
    for axis in (2, 3):
        starts = np.arange(0, values.shape[axis], size)
        lengths = np.diff(np.append(starts, values.shape[axis])).reshape(-1, *[1] * (3 - axis))
        values = np.add.reduceat(values, starts, axis=axis) / lengths
    return values


def fit_terms(rows: TokenRows) -> Arrays:
    """Return the ``terms``, sorted keys of words and pairs, and their ``idf``.

    Terms occur in at least two texts; where none does, in one.
    """
    row, key = _occurrences(rows)
    terms, column = np.unique(key, return_inverse=True)
    once = np.unique(row * len(terms) + column)
    frequency = np.bincount(once % max(1, len(terms)), minlength=len(terms))
    enough = np.flatnonzero(frequency >= min(2, frequency.max(initial=0)))
    chosen = np.sort(enough[np.argsort(-frequency[enough], kind="stable")[:MOST_TERMS]])
    return {"terms": terms[chosen], "idf": np.log((1 + len(rows)) / (1 + frequency[chosen])) + 1}


def tfidf(terms: Stored, rows: TokenRows) -> Any:
    """Return the TF-IDF weights of texts as a sparse matrix ``[N, terms]``; a text without a known term is 0."""
    row, key = _occurrences(rows)
    column = np.minimum(np.searchsorted(terms["terms"], key), max(0, len(terms["terms"]) - 1))
    is_term = terms["terms"][column] == key if len(terms["terms"]) else np.zeros(len(key), dtype=bool)
    shape = (len(rows), len(terms["terms"]))
    matrix = sparse.csr_matrix((np.ones(int(is_term.sum())), (row[is_term], column[is_term])), shape)
    matrix.sum_duplicates()
    matrix.data = (1 + np.log(matrix.data)) * terms["idf"][matrix.indices]
    length = np.sqrt(np.asarray(matrix.multiply(matrix).sum(axis=1)).ravel())
    matrix.data /= np.repeat(length, np.diff(matrix.indptr))
    return matrix


def _occurrences(rows: TokenRows) -> tuple[IntArray, NDArray[np.int64]]:
    """Return row and key of every word of the vocabulary, and of every pair of neighbours."""
    row, token = np.repeat(np.arange(len(rows)), rows.lengths), rows.tokens.astype(np.int64)
    word = token >= FIRST_WORD
    pair = word[:-1] & word[1:] & (row[:-1] == row[1:])
    pairs = token[:-1][pair] * PAIR + token[1:][pair]
    return np.concatenate((row[word], row[:-1][pair])), np.concatenate((token[word], pairs))
