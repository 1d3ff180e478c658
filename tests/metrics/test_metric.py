"""What holds for every registered metric."""

import inspect
import warnings
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from dubio.core.errors import UnknownName, UserError
from dubio.core.predictions import Predictions, join
from dubio.core.registry import METRICS
from dubio.core.weights import ONCE, Weights
from dubio.metrics.as_published import referral_accuracy_as_published
from dubio.metrics.metric import MetricFunction, all_metrics, metric_named, prepared, preparing_once, score_each
from tests.metrics.helpers import coarse, drawn, drawn_multilabel, of_probs, seeds

ORDER_MATTERS = ("ood_auroc_as_published", "ood_aupr_as_published")


def worlds(seed):
    strange = replace(drawn(seed + 1, rows=30), ood=np.ones(30, dtype=bool))
    yield join([drawn(seed), strange])
    yield coarse(seed, samples=2)
    yield drawn_multilabel(seed)
    yield drawn(seed, classes=5, target="ordinal")


def same(one, other, *, tolerance=1e-9):
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert value == pytest.approx(other[name], abs=tolerance, nan_ok=True), name


def plain():
    """The metrics of this room; those that split rows at random by their place live in others.

    Two published mistakes depend on the order of rows, and are tested beside what they come from.
    """
    return [
        entry.factory()
        for entry in METRICS.entries()
        if entry.origin.startswith("dubio.metrics.") and entry.name not in ORDER_MATTERS
    ]


@settings(max_examples=8, deadline=None)
@given(seeds)
def test_the_order_of_rows_never_matters(seed):
    for predictions in worlds(seed):
        order = np.random.default_rng(seed).permutation(len(predictions))
        same(score_each(predictions, plain()).values, score_each(predictions.take(order), plain()).values)


@settings(max_examples=8, deadline=None)
@given(seeds)
def test_the_order_of_samples_never_matters(seed):
    for predictions in worlds(seed):
        turned = replace(predictions, logits=predictions.logits[::-1], member=predictions.member[::-1])
        same(score_each(predictions, plain()).values, score_each(turned, plain()).values)


@settings(max_examples=8, deadline=None)
@given(seeds)
def test_the_order_of_classes_never_matters_where_they_have_none(seed):
    order = np.random.default_rng(seed).permutation(4)
    one = drawn(seed)
    other = replace(one, logits=one.logits[:, :, order], labels=np.argsort(order)[one.labels])
    same(score_each(one, plain()).values, score_each(other, plain()).values)
    one = drawn_multilabel(seed)
    other = replace(one, logits=one.logits[:, :, order], labels=one.labels[:, order])
    same(score_each(one, plain()).values, score_each(other, plain()).values)


EDGES = {
    "one row": of_probs([[0.9, 0.1]], [0]),
    "one wrong row": of_probs([[0.9, 0.1]], [1]),
    "one class present": of_probs([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]], [0, 0, 0]),
    "certain and right": of_probs([[1.0, 0.0], [0.0, 1.0]], [0, 1]),
    "certain and wrong": of_probs([[1.0, 0.0], [0.0, 1.0]], [1, 0]),
    "all tied": of_probs([[0.5, 0.5]] * 4, [0, 1, 0, 1]),
    "opposed samples": of_probs([[[1.0, 0.0]], [[0.0, 1.0]]], [0]),
    "unlabelled": of_probs([[0.9, 0.1]] * 2),
    "partly unlabelled": of_probs([[0.9, 0.1], [0.3, 0.7]], [-1, 1]),
    "one ordinal row": of_probs([[0.9, 0.1]], [0], target="ordinal"),
    "one multilabel row": Predictions(np.zeros((1, 1, 1), np.float32), np.array([[1]]), target="multilabel"),
    "certain multilabel": Predictions(
        np.array([[[np.inf, -np.inf]], [[np.inf, np.inf]]], np.float32), np.array([[0, 1]]), target="multilabel"
    ),
    "one of each kind": of_probs([[0.9, 0.1], [0.6, 0.4]], [0, -1], ood=np.array([False, True])),
}


@pytest.mark.parametrize("name", EDGES)
def test_every_metric_answers_or_refuses_by_name_on_every_edge(name):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = score_each(EDGES[name], plain())
    assert found.values.keys() | found.reasons.keys() == found.metrics.keys()
    assert not found.values.keys() & found.reasons.keys()
    for metric, reason in found.reasons.items():
        assert metric in reason
        assert reason.endswith(".")


def test_every_metric_has_a_summary_and_a_reason_where_it_does_not_rank():
    for metric in all_metrics():
        assert METRICS.entry(metric.name).summary, metric.name
        assert metric.comparable == (not metric.why_not), metric.name


HIGHER_IS_BETTER = frozenset({
    "accuracy", "accuracy_at_half", "au_arc", "auc_from_grade", "class_auroc", "conformal_coverage", "disagreement",
    "diversity", "id_aupr", "macro_f1", "macro_f1_at_half", "micro_f1", "micro_f1_at_half", "misclassification_aupr",
    "misclassification_auroc", "ood_aupr", "ood_aupr_as_published", "ood_auroc", "ood_auroc_as_published",
    "ood_correlation_as_published", "pairwise_kl", "quadratic_kappa", "referral_accuracy",
    "referral_accuracy_as_published", "referral_auc", "referral_auc_as_published", "referral_gain",
    "sensitivity_at_specificity", "specificity_at_sensitivity",
})  # fmt: skip
REVISED = frozenset({
    "accuracy", "error", "macro_f1", "micro_f1", "calibrated_aurc", "calibrated_brier", "calibrated_nll",
    "conformal_coverage", "conformal_set_size", "referral_accuracy_as_published",
})  # fmt: skip
"""Metrics whose definition has changed once: version 2."""


def test_directions_versions_and_the_fewest_units():
    metrics = [entry.factory() for entry in METRICS.entries() if entry.origin.startswith("dubio.")]
    assert {metric.name for metric in metrics if metric.better == "higher"} == HIGHER_IS_BETTER
    assert {metric.name: metric.version for metric in metrics if metric.version != 1} == dict.fromkeys(REVISED, 2)
    of_retained = dict.fromkeys(["referral_auc", "sensitivity_at_specificity", "specificity_at_sensitivity"], 15)
    fewest = {metric.name: metric.least_units for metric in metrics if metric.least_units != 2}
    assert fewest == {"ood_fpr95": 40, **of_retained}
    assert metric_named("ood_correlation(quantity=predictive_entropy)").better == "higher"


@pytest.mark.parametrize(
    "text",
    [
        *(f"{name}(bins=15)" for name in ("ece", "ece_adaptive", "ece_pooled", "classwise_ece", "sce", "ace")),
        "tace(bins=15, threshold=0.001)", "tace_as_published(bins=15, threshold=0.001)", "auc_from_grade(grade=2)",
        "sensitivity_at_specificity(specificity=0.8, retained=1.0)", "aurc(quantity=confidence)",
        "specificity_at_sensitivity(sensitivity=0.85, retained=1.0)", "referral_accuracy_as_published(retained=0.8)",
        "referral_auc_as_published(retained=0.8)", "ood_correlation_as_published(quantity=entropy, kind=dropout)",
    ],
)  # fmt: skip
def test_defaults_are_left_out_of_the_name(text):
    assert metric_named(text).name == text.partition("(")[0]


def test_contributions_average_to_the_value():
    for predictions in worlds(3):
        found = score_each(predictions)
        for name, value in found.values.items():
            metric = found.metrics[name]
            if metric.per_example is not None:
                assert metric.per_example(predictions).mean() == pytest.approx(value), name


def test_names_with_arguments():
    predictions = drawn(0)
    found = score_each(predictions, ["ece(bins=10)", 'aurc(quantity="predictive_entropy")', "ece"])
    assert list(found.values) == ["ece(bins=10)", 'aurc(quantity="predictive_entropy")', "ece"]
    assert metric_named("aurc(quantity=predictive_entropy)").name == 'aurc(quantity="predictive_entropy")'
    assert metric_named(" tace( bins = 5 , threshold=0.01)").name == "tace(bins=5, threshold=0.01)"
    with pytest.raises(UnknownName, match="Did you mean 'accuracy'"):
        metric_named("acuracy")
    with pytest.raises(UnknownName, match="argument of ece"):
        metric_named("ece(bin=3)")
    with pytest.raises(UserError, match="argument=value"):
        metric_named("ece(10)")
    with pytest.raises(UserError, match="must be a whole number"):
        metric_named("ece(bins=ten)")
    with pytest.raises(UserError, match="must be a name"):
        metric_named("ece(bins=3")


def test_asking_for_what_does_not_apply_is_refused_with_the_reason():
    found = score_each(drawn(0), ["rps"])
    assert "rps does not apply: it is defined for ordinal" in found.reasons["rps"]
    assert "rps" not in found.values
    with pytest.raises(UserError, match="rps is defined for ordinal"):
        metric_named("rps").compute(drawn(0))


def test_what_is_prepared_is_computed_once_within_a_block_and_forgotten_after_it():
    calls = []

    @prepared
    def preparation(predictions, factor):
        calls.append(factor)
        return factor * len(predictions)

    one, other = drawn(0), drawn(1)
    for _ in range(2):
        assert preparation(one, 2) == 2 * len(one)
    assert calls == [2, 2]  # outside, every time
    calls.clear()
    with preparing_once():
        with preparing_once():
            assert preparation(one, 2) == preparation(one, 2) == 2 * len(one)
        assert preparation(one, 3) == 3 * len(one)
        assert preparation(one, 2) == 2 * len(one)  # known from the block within
        assert preparation(other, 2) == 2 * len(other)
    assert calls == [2, 3, 2]
    preparation(one, 2)
    assert calls == [2, 3, 2, 2]


def toy(p, *, factor=2.0, weights=ONCE):
    """Return the factor, once for every replicate."""
    return np.full(len(weights), factor)


def test_a_declared_metric_has_the_arguments_and_the_words_of_its_function():
    declared = MetricFunction(toy, "toy", "lower", frozenset(), frozenset({"multiclass"}))
    assert (declared.__name__, declared.__doc__) == (toy.__name__, toy.__doc__)
    assert list(inspect.signature(declared.factory()).parameters) == ["factor"]
    assert (declared.metric().name, declared.metric(factor=3.0).name) == ("toy", "toy(factor=3.0)")
    assert declared(drawn(0), factor=5.0) == 5.0
    four = Weights.of(np.ones((4, len(drawn(0))), dtype=int))
    assert declared.metric().weighted(drawn(0), four).tolist() == [2.0] * 4


def test_forms_per_row_and_with_weights():
    forms = {
        name: (metric_named(name).per_example is not None, metric_named(name).weighted is not None)
        for name in ("accuracy", "ood_auroc", "ece", "aurc_as_published")
    }
    assert forms == {
        "accuracy": (True, True), "ood_auroc": (True, True), "ece": (False, True), "aurc_as_published": (False, False)
    }  # fmt: skip


def test_weights_of_unlabelled_rows_do_not_count_and_replicates_are_repeated_rows():
    whole = drawn(0, rows=30)
    some = replace(whole, labels=np.where(np.arange(30) % 3 == 0, -1, whole.labels))
    assert (some.labels == 0).any()
    counts = np.random.default_rng(0).integers(0, 4, (3, 30))
    for name in ("accuracy", "ece"):
        found = metric_named(name).weighted(some, Weights.of(counts))
        for row, value in zip(counts, found, strict=True):
            rows = np.repeat(np.arange(30), row * (some.labels >= 0))
            assert value == pytest.approx(metric_named(name).compute(some.take(rows))), name
    found = referral_accuracy_as_published(whole, weights=Weights.of(counts))  # understands no weights itself
    for row, value in zip(counts, found, strict=True):
        assert value == pytest.approx(referral_accuracy_as_published(whole.take(np.repeat(np.arange(30), row))))


def test_a_metric_refuses_predictions_that_lack_what_it_needs():
    for name in ("ood_auroc", "generalisation_gap", "diversity"):
        with pytest.raises(UserError, match=f"{name} cannot be computed: it needs"):
            metric_named(name).compute(drawn(0, samples=1))


def test_the_needs_of_a_quantity_are_added_unless_it_has_others_instead():
    assert "ood" in metric_named("ood_auroc").needs
    assert metric_named("ood_auroc(quantity=mutual_information)").needs == {"ood", "samples"}
    assert metric_named("aurc(quantity=model_uncertainty)").needs == {"labels"}  # samples, or the head's own variance
