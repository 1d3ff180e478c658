"""What predictions must have: every need is met or named."""

from __future__ import annotations

import numpy as np
import pytest

from dubio.core.errors import UserError
from dubio.core.predictions import Predictions
from dubio.core.types import Need
from dubio.metrics.metric import metric_named
from dubio.metrics.requirements import has_labels, labelled, lacking, require, why_not_applicable


def made(labels: list[int] | None = None, samples: int = 1, **more: object) -> Predictions:
    own = np.array([0, 1, -1, 1] if labels is None else labels, dtype=np.int64)
    return Predictions(np.zeros((samples, len(own), 2), dtype=np.float32), own, **more)  # type: ignore[arg-type]


def several(labels: list[list[int]]) -> Predictions:
    return Predictions(np.zeros((1, len(labels), len(labels[0])), dtype=np.float32), np.array(labels), "multilabel")


FLAGS = np.array([True, False, False, False])


@pytest.mark.parametrize(
    ("need", "met", "lacks", "clause"),
    [
        ("labels", made([-1, -1, 0, -1]), made([-1] * 4), "every row is unlabelled"),
        ("samples", made(samples=2), made(samples=1), "at least two samples, and there is one"),
        ("ood", made(ood=FLAGS), made(ood=FLAGS & False), "every row is in-distribution"),
        ("ood", made(ood=~FLAGS), made(ood=FLAGS | True), "every row is out-of-distribution"),
        ("two_classes", made([0, 1, -1, -1]), made([1, 1, -1, 1]), "at least two classes among the labels"),
        ("two_classes", several([[0, 1], [0, 0]]), several([[0, 1], [0, 1]]), "some rows have and some do not"),
        ("data_variance", made(data_variance=np.ones((1, 4, 2), dtype=np.float32)), made(), "it needs data_variance"),
        ("model_variance", made(model_variance=np.ones((1, 4), dtype=np.float32)), made(), "it needs model_variance"),
    ],
)  # fmt: skip
def test_a_need_is_met_or_named(need: Need, met: Predictions, lacks: Predictions, clause: str) -> None:
    assert lacking(met, {need}) is None
    require(met, {need}, "this")
    reason = lacking(lacks, {need, "probs"})
    assert reason is not None
    assert clause in reason
    with pytest.raises(UserError, match=f"this cannot be computed: .*{clause}"):
        require(lacks, {need}, "this")


def test_several_labels_are_always_labels() -> None:
    assert has_labels(several([[0, 0], [0, 0]]))
    assert not has_labels(made([-1, -1]))


def test_rows_without_a_label_are_left_out() -> None:
    assert labelled(made(), "this").labels.tolist() == [0, 1, 1]
    with pytest.raises(UserError, match="this cannot be computed: it needs labels"):
        labelled(made([-1]), "this")


def test_a_metric_of_another_target_does_not_apply() -> None:
    reason = why_not_applicable(metric_named("rps"), made())
    assert reason == "it is defined for ordinal predictions, and these are multiclass"
    assert why_not_applicable(metric_named("rps"), made(target="ordinal")) is None
    assert why_not_applicable(metric_named("diversity"), made()) == "it needs at least two samples, and there is one"
