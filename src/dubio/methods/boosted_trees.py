"""Gradient boosting of trees on tables, by scikit-learn's HistGradientBoostingClassifier.

The raw score of class k is b_k + Σ over trees of the value of the leaf that the row falls into (Friedman 2001, "Greedy
function approximation"); a softmax, or of two classes and of labels a sigmoid, makes probabilities of them. Boosting
stops where the NLL on validation is lowest. A fit is stored as the nodes of all its trees, one array per field.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dubio.core.specs import part
from dubio.core.types import FloatArray, Modality
from dubio.core.validate import Positive
from dubio.encoders import ArrayRows, Encoded
from dubio.methods.estimator import FITTED, Arrays, Estimator, Labelled, Report, Stored

BLOCK = 4096
"""Rows that fall through all trees at a time."""


@part("boosted-trees")
@dataclass(frozen=True)
class BoostedTrees(Estimator):
    """Gradient boosting with scikit-learn's defaults; of several labels, one classifier each.

    Attributes:
        rounds: Largest number of rounds; each adds a tree for every class.
    """

    inputs: ClassVar[tuple[Modality, ...]] = ("table",)
    rate: ClassVar[float] = 1e-4

    rounds: Positive = 100

    def fit(self, train: Labelled, val: Labelled, report: Report) -> tuple[Arrays, dict[str, Any]]:
        """Return the trees of the rounds up to the lowest NLL on validation, one number of rounds for all labels."""
        from sklearn.ensemble import HistGradientBoostingClassifier

        values, columns = _values(train.rows), train.labels.T if train.multilabel else [train.labels]
        models = []
        for index, column in enumerate(columns):
            report(index / len(columns), f"{index + 1} of {len(columns)}")
            model = HistGradientBoostingClassifier(max_iter=self.rounds, early_stopping=False, random_state=0)
            models.append(model.fit(values, column))
        # [rounds][outputs]: the trees of all labels of a round stand together, as those of all classes do
        trees = [[tree.nodes for model in models for tree in model._predictors[k]] for k in range(self.rounds)]
        first = np.concatenate([np.ravel(model._baseline_prediction) for model in models])
        arrays = {"first": first.astype(np.float64), **_nodes([tree for level in trees for tree in level])}
        best = self._best_round(arrays, val) if len(val.labels) else self.rounds
        nodes = _nodes([tree for level in trees[:best] for tree in level])
        return {"first": arrays["first"], **nodes}, {"rounds": best}

    def _best_round(self, arrays: Arrays, val: Labelled) -> int:
        """Return the number of rounds with the lowest NLL on validation; the fewest of equals."""
        totals = arrays["first"] + np.cumsum(leaf_values(arrays, _values(val.rows)), axis=1)
        losses = [val.losses(_logits(totals[:, k], val.classes)).mean() for k in range(totals.shape[1])]
        return 1 + int(np.argmin(losses))

    def scores(self, arrays: Stored, rows: Encoded) -> FloatArray:
        """Return the logits of the fitted classes."""
        raw = arrays["first"] + leaf_values(arrays, _values(rows)).sum(axis=1)
        return _logits(raw, int(arrays[FITTED].sum()))


def leaf_values(arrays: Stored, values: FloatArray) -> FloatArray:
    """Return the value of the leaf that each row reaches in every tree, ``[N, rounds, outputs]``.

    Args:
        arrays: The nodes of all trees, one tree after another; a leaf is its own child.
        values: float64 ``[N, D]`` without missing values.
    """
    roots, outputs = arrays["roots"], len(arrays["first"])
    leaves = np.empty((len(values), len(roots)))
    for start in range(0, len(values), BLOCK):
        block = values[start : start + BLOCK]
        rows = np.arange(len(block))[:, None]
        node, before = np.repeat(roots[None], len(block), axis=0), None
        while before is None or (node != before).any():
            smaller = block[rows, arrays["feature"][node]] <= arrays["threshold"][node]
            before, node = node, np.where(smaller, arrays["left"][node], arrays["right"][node])
        leaves[start : start + BLOCK] = arrays["value"][node]
    return leaves.reshape(len(values), -1, outputs)


def _nodes(trees: Sequence[NDArray[Any]]) -> Arrays:
    """Return the nodes of trees one after another, children counted over all of them, and the ``roots``."""
    sizes = [len(tree) for tree in trees]
    roots = np.cumsum([0, *sizes])[:-1]
    nodes, own = np.concatenate(trees), np.arange(sum(sizes))
    leaf, offset = nodes["is_leaf"].astype(bool), np.repeat(roots, sizes)
    children = {side: np.where(leaf, own, nodes[side].astype(np.int64) + offset) for side in ("left", "right")}
    feature = np.where(leaf, 0, nodes["feature_idx"]).astype(np.int64)
    numbers = {"threshold": nodes["num_threshold"].astype(np.float64), "value": nodes["value"].astype(np.float64)}
    return {"roots": roots.astype(np.int64), "feature": feature, **children, **numbers}


def _values(rows: Encoded) -> FloatArray:
    assert isinstance(rows, ArrayRows)  # a table
    return rows.values.astype(np.float64)


def _logits(raw: FloatArray, classes: int) -> FloatArray:
    """Return one column per class: of two classes, raw scores are the log odds of the second."""
    return raw if raw.shape[1] == classes else np.concatenate((np.zeros_like(raw), raw), axis=1)
