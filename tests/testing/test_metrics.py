"""Each way in which a metric can be wrong has a sentence of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dubio.core.predictions import Predictions
from dubio.core.registry import METRICS, Entry
from dubio.core.types import Metric
from dubio.metrics.metric import metric_named
from dubio.testing import assert_ok, check_metric

CLASSES = frozenset({"multiclass", "ordinal"})
LABELS = frozenset({"labels"})


def right(predictions: Predictions) -> Any:
    return (predictions.labelled.probs.argmax(axis=1) == predictions.labelled.labels).astype(float)


def share_right(predictions: Predictions) -> float:
    return float(right(predictions).mean())


GOOD = Metric("mine", "higher", share_right, right, LABELS, CLASSES)


def told(metric: Metric) -> list[str]:
    return [finding.problem for finding in check_metric(metric)]


def computing(compute: Callable[[Predictions], Any], **fields: Any) -> Metric:
    return replace(GOOD, compute=compute, per_example=None, **fields)


def spoil_logits(predictions: Predictions) -> float:
    predictions.logits[:] -= predictions.logits.max(axis=-1, keepdims=True)
    return share_right(predictions)


def spoil_probs(predictions: Predictions) -> float:
    predictions.probs.sort(axis=1)
    return 0.5


def first_half(predictions: Predictions) -> float:
    return float(right(predictions)[: len(predictions) // 2].mean())


def first_sample(predictions: Predictions) -> float:
    known = predictions.labelled
    return float((known.logits[0].argmax(axis=1) == known.labels).mean())


def all_rows(predictions: Predictions) -> float:
    return float((predictions.probs.argmax(axis=1) == predictions.labels).mean())


def between_samples(predictions: Predictions) -> float:
    if predictions.samples < 2:
        raise ValueError("one sample")
    return float(predictions.labelled.logits.std(axis=0).mean())


def refused(predictions: Predictions) -> float:
    raise IndexError("axis 3")


def variance(predictions: Predictions) -> float:
    assert predictions.data_variance is not None
    return float(predictions.data_variance.mean())


def one_class(predictions: Predictions) -> float:
    if len(np.unique(predictions.labelled.labels)) < 2:
        raise ValueError("only one class")
    return share_right(predictions)


BROKEN: dict[str, tuple[Metric, str]] = {
    "better": (replace(GOOD, better="more"), "better is 'more'"),
    "needs": (replace(GOOD, needs=frozenset({"lables"})), "needs holds lables"),
    "needs list": (replace(GOOD, needs=["labels"]), "needs is a list"),
    "targets": (replace(GOOD, targets=frozenset()), "targets is empty"),
    "reason": (replace(GOOD, comparable=False), "not comparable and does not say why"),
    "version": (replace(GOOD, version=0), "version is 0"),
    "raises": (computing(refused), "On multiclass predictions it raised IndexError: axis 3."),
    "array": (computing(right), "it gives a ndarray"),
    "NaN": (computing(lambda p: float("nan")), "On typical multiclass predictions it is NaN"),
    "logits": (computing(spoil_logits), "Computing it changes logits of the predictions"),
    "probs": (computing(spoil_probs), "Computing it changes probs of the predictions"),
    "rows": (computing(first_half), "With the rows in another order (multiclass), the value goes from"),
    "samples": (computing(first_sample), "With the samples in another order (multiclass), the value goes from"),
    "mean": (replace(GOOD, per_example=lambda p: 1 - right(p)), "The mean of per_example is"),
    "length": (replace(GOOD, per_example=lambda p: right(p)[:5]), "per_example gives shape (5,) for 80 labelled rows"),
    "direction": (replace(GOOD, better="lower"), "better is 'lower', yet a perfect predictor has 1 and a random one"),
    "unlabelled": (computing(all_rows), "With additional unlabelled rows (multiclass), the value goes from"),
    "undeclared samples": (computing(between_samples), "needs labels; on multiclass predictions with nothing else"),
    "undeclared class": (computing(one_class), "raised ValueError: only one class."),
    "undeclared labels": (
        replace(GOOD, needs=frozenset()), "With other labels (multiclass), which needs does not name, the value goes",
    ),
    "undeclared variance": (computing(variance), "With other data_variance (multiclass), which needs does not name"),
    "undeclared ood": (
        computing(lambda p: float(p.labelled.probs[p.labelled.ood].max())), "With other ood (multiclass)",
    ),
    "weights": (
        replace(GOOD, weighted=lambda predictions, weights: weights.totals),
        "With every row counted once it is",
    ),
    "columns": (
        replace(GOOD, weighted=lambda predictions, weights: np.zeros(1)),
        "For two columns of weights it gives shape (1,)",
    ),
}  # fmt: skip


def test_a_good_metric_passes() -> None:
    assert told(GOOD) == []


@pytest.mark.parametrize("name", sorted(BROKEN))
def test_a_broken_metric_is_told_what_is_wrong(name: str) -> None:
    metric, sentence = BROKEN[name]
    found = told(metric)
    assert any(sentence in text for text in found), found


MIRRORED = ("ood_auroc_as_published", "ood_aupr_as_published")


@pytest.mark.parametrize("name", METRICS.names())
def test_built_in_metrics_pass(name: str) -> None:
    if METRICS.entry(name).origin.startswith("dubio.") and name not in (*MIRRORED, "aurc_as_published"):
        assert_ok(check_metric(name))


def test_the_published_step_needs_a_thousand_rows() -> None:
    assert "needs at least 1000 rows" in check_metric("aurc_as_published")[0].problem


@pytest.mark.parametrize("name", MIRRORED)
def test_the_published_mistake_of_mirrored_rows_is_found(name: str) -> None:
    found = [finding.problem for finding in check_metric(name)]
    assert found
    assert all("rows in another order" in problem for problem in found)


def test_built_in_metrics_pass_with_other_quantities() -> None:
    assert_ok(check_metric("ood_auroc", arguments={"quantity": "mutual_information"}))
    assert_ok(check_metric(metric_named("aurc(quantity=predictive_entropy)")))


def entry(factory: Callable[..., Any]) -> Entry[Any]:
    return Entry("theirs", factory, "tests", "A metric.", {})


def test_functions_that_make_no_metric() -> None:
    assert "returned float, not a Metric" in check_metric(entry(lambda: 0.5))[0].problem
    assert "registered as 'theirs' and calls itself 'mine'" in check_metric(entry(lambda: GOOD))[0].problem


def test_type_hints_that_cannot_be_read() -> None:
    def make(*, bins: Binning = 3) -> Metric:  # type: ignore[name-defined] # noqa: F821
        return GOOD

    found = [finding.problem for finding in check_metric(entry(make))]
    assert "Its type hints cannot be read: NameError" in found[0]


def test_metrics_and_tasks_are_checked_without_torch() -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from dubio.testing import check_metric, check_task\n"
        "from dubio.testing.tasks import small_task\n"
        "assert not check_metric('accuracy') and not check_task(small_task('table'))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
