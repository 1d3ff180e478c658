import numpy as np
import pytest
import torch
from hypothesis import given, settings
from sklearn.metrics import roc_auc_score, roc_curve
from torchmetrics.functional import classification as tm

from dubio.core.errors import UserError
from dubio.core.predictions import Predictions
from dubio.metrics.decisions import correct
from dubio.metrics.metric import metric_named
from dubio.metrics.quantities import uncertainty
from dubio.metrics.referral_curve import (
    FRACTIONS,
    NHS_POINT,
    accuracy_changes,
    referral_curve,
    retained_roc,
    sensitivity_at_specificity,
)
from dubio.metrics.scoring import class_auroc
from dubio.statistics.verdicts import Rows, two_sided_p
from tests.metrics.helpers import coarse, drawn, drawn_multilabel, of_probs, seeds


def test_each_fraction_is_the_accuracy_and_auc_of_the_least_uncertain_rows():
    predictions = drawn(0, classes=2, rows=101)
    curve = referral_curve(predictions, quantity="predictive_entropy")
    order = np.argsort(uncertainty(predictions, "predictive_entropy"))
    for place, fraction in enumerate(FRACTIONS):
        kept = order[: int(np.floor(fraction * 101 + 0.5))]
        assert curve.retained[place] == len(kept)
        assert curve.accuracy[place] == pytest.approx(correct(predictions)[kept].mean())
        assert curve.auc[place] == pytest.approx(roc_auc_score(predictions.labels[kept], predictions.probs[kept, 1]))


def test_one_class_left_is_undefined_with_a_reason():
    predictions = of_probs([[0.99, 0.01], [0.98, 0.02], [0.45, 0.55], [0.4, 0.6]], [0, 0, 1, 1], classes=("no", "yes"))
    curve = referral_curve(predictions, fractions=(0.5, 1.0))
    assert np.isnan(curve.auc[0])
    assert curve.auc[1] == 1.0
    with pytest.raises(UserError, match=r"50% retained is undefined: every row is other than class 'yes'"):
        retained_roc(predictions, fraction=0.5)


@settings(max_examples=20, deadline=None)
@given(seeds)
def test_row_order_never_matters(seed):
    predictions = coarse(seed, classes=2)
    mixed = predictions.take(np.random.default_rng(seed + 1).permutation(len(predictions)))
    one, other = referral_curve(predictions), referral_curve(mixed)
    assert one.accuracy == pytest.approx(other.accuracy)
    assert one.auc == pytest.approx(other.auc, nan_ok=True)


def test_tied_rows_across_the_cut_count_in_part():
    predictions = of_probs([[0.9, 0.1], [0.7, 0.3], [0.7, 0.3], [0.7, 0.3]], [0, 0, 1, 1])
    assert referral_curve(predictions, fractions=(0.5,)).accuracy[0] == pytest.approx((1 + 1 / 3) / 2)


@settings(max_examples=20, deadline=None)
@given(seeds)
def test_the_mean_of_accuracy_changes_is_what_referral_changes(seed):
    predictions = coarse(seed, classes=2)
    retained, everything = referral_curve(predictions, fractions=(0.8, 1.0)).accuracy
    assert accuracy_changes(predictions, retained=0.8).mean() == pytest.approx(retained - everything)


@pytest.mark.parametrize("rows", [100, 300])
@pytest.mark.parametrize(("sure", "unsure"), [(0.6, 0.6), (0.8, 0.8), (0.97, 0.97), (0.6, 0.9)])
def test_harm_is_found_where_the_retained_are_wrong_more_often_and_hardly_by_chance(rows, sure, unsure):
    """Simulated: of 300 test sets by chance at most 2.5 % have each sign, which leaves 14 at the very most."""
    generator, signs = np.random.default_rng(1), []
    for _ in range(300):
        confidence = generator.uniform(0.5, 1.0, size=rows)
        right = np.where(confidence > 0.6, sure, unsure)  # the fifth that is referred is below
        labels = (generator.uniform(size=rows) >= right).astype(int)
        predictions = of_probs(np.stack([confidence, 1 - confidence], axis=1), labels)
        changes = accuracy_changes(predictions, retained=0.8)
        term = Rows({"leader": changes}).own_term("leader")
        change = float(changes.mean())
        signs.append(np.sign(change) if term and two_sided_p(change, [term]) <= 0.05 else 0)
    if sure == unsure:
        assert max(signs.count(-1), signs.count(1)) <= 14
    else:
        assert np.mean(np.array(signs) == -1) > (0.6 if rows == 100 else 0.95)


def test_random_referral_is_a_control():
    predictions = drawn(1, rows=2000)
    curve = referral_curve(predictions, quantity="random")
    assert curve.accuracy == pytest.approx(np.full(6, correct(predictions).mean()), abs=0.05)


@pytest.mark.parametrize("fraction", [0.0, -0.1, 1.1, float("nan")])
def test_a_fraction_outside_is_refused(fraction):
    with pytest.raises(UserError, match="fraction retained"):
        referral_curve(drawn(0), fractions=(fraction,))


def test_class_auroc_equals_scikit_learn():
    several = drawn(2, rows=200)
    wanted = roc_auc_score(several.labels, several.probs, multi_class="ovr", average="macro")
    assert class_auroc(several) == pytest.approx(wanted, abs=1e-9)
    labels = drawn_multilabel(2, rows=200)
    assert class_auroc(labels) == pytest.approx(roc_auc_score(labels.labels, labels.probs, average="macro"), abs=1e-9)
    graded = drawn(3, rows=200, target="ordinal")
    wanted = roc_auc_score(graded.labels >= 2, graded.probs[:, 2:].sum(1))
    assert class_auroc(graded) == pytest.approx(wanted, abs=1e-9)
    certain = Predictions(np.array([[[0, 40], [0, 41], [0, 39]]], np.float32), np.array([0, 1, 0]))
    assert class_auroc(certain) == 1.0


def test_roc_equals_scikit_learn_and_many_classes_are_refused():
    predictions = drawn(4, classes=2, rows=90)
    curve = retained_roc(predictions)
    fpr, tpr, _ = roc_curve(predictions.labels, predictions.probs[:, 1], drop_intermediate=False)
    assert curve.false_positive_rate == pytest.approx(fpr)
    assert curve.true_positive_rate == pytest.approx(tpr)
    with pytest.raises(UserError, match="binary or ordinal"):
        retained_roc(drawn(0))


def value(name, predictions):
    return metric_named(name).compute(predictions)


@settings(max_examples=20, deadline=None)
@given(seeds)
def test_binary_figures_equal_torchmetrics(seed):
    predictions = drawn(seed, rows=80, classes=2)
    given_, truth = torch.tensor(predictions.probs[:, 1]), torch.tensor(predictions.labels)
    theirs, _ = tm.binary_sensitivity_at_specificity(given_, truth, min_specificity=0.8)
    assert value("sensitivity_at_specificity", predictions) == pytest.approx(float(theirs), abs=1e-6)
    theirs, _ = tm.binary_specificity_at_sensitivity(given_, truth, min_sensitivity=0.85)
    assert value("specificity_at_sensitivity", predictions) == pytest.approx(float(theirs), abs=1e-6)


@settings(max_examples=20, deadline=None)
@given(seeds)
def test_ties_are_never_split_and_row_order_never_matters(seed):
    predictions = coarse(seed, rows=60, classes=2)
    score, truth = predictions.probs[:, 1].round(6), predictions.labels == 1
    found = max(
        (score[truth] >= t).mean() for t in (*np.unique(score), 2.0) if (score[~truth] < t).mean() >= 0.8 - 1e-12
    )
    assert value("sensitivity_at_specificity", predictions) == pytest.approx(found)
    order = np.random.default_rng(seed).permutation(60)
    assert value("sensitivity_at_specificity", predictions.take(order)) == pytest.approx(found)


def test_grades_are_screened_from_the_second_and_classes_one_by_one():
    grades = drawn(1, classes=5, target="ordinal", samples=1)
    two = of_probs(np.c_[grades.probs[:, :2].sum(1), grades.probs[:, 2:].sum(1)], (grades.labels >= 2).astype(int))
    assert value("sensitivity_at_specificity", grades) == pytest.approx(value("sensitivity_at_specificity", two))
    several = drawn(1, classes=3, samples=1)
    parts = [
        value(
            "sensitivity_at_specificity",
            of_probs(np.c_[1 - several.probs[:, k], several.probs[:, k]], (several.labels == k).astype(int)),
        )
        for k in range(3)
    ]
    assert value("sensitivity_at_specificity", several) == pytest.approx(np.mean(parts))


def test_retained_rows_alone_count():
    predictions = drawn(2, rows=200, classes=2)
    kept = np.argsort(1 - predictions.probs.max(1))[:100]
    name = "sensitivity_at_specificity(retained=0.5)"
    assert value(name, predictions) == pytest.approx(value("sensitivity_at_specificity", predictions.take(kept)))
    assert referral_curve(predictions, fractions=(0.5,)).retained[0] == 100


def test_the_nhs_point():
    labels = np.array([1] * 20 + [0] * 20)
    good = of_probs(np.c_[1 - np.r_[[0.9] * 17, [0.1] * 3, [0.8] * 4, [0.05] * 16],
                          np.r_[[0.9] * 17, [0.1] * 3, [0.8] * 4, [0.05] * 16]], labels)  # fmt: skip
    assert value("sensitivity_at_specificity", good) == pytest.approx(1.0)
    assert value("specificity_at_sensitivity", good) == pytest.approx(1.0)
    chance = of_probs(np.full((40, 2), 0.5), labels)
    assert value("sensitivity_at_specificity", chance) == 0.0
    assert value("specificity_at_sensitivity", chance) == 0.0


def test_undefined_and_refused():
    assert np.isnan(value("sensitivity_at_specificity(retained=0.01)", drawn(0, classes=2, rows=100)))
    with pytest.raises(UserError, match="specificity must lie between 0 and 1; given 1"):
        value("sensitivity_at_specificity(specificity=1.0)", drawn(0, classes=2))


def test_a_long_run_of_close_scores_has_the_same_ties_for_sensitivity_as_in_the_roc_curve():
    """A run of log-odds closer than float32 resolves is cut from one end; both rates must see the same blocks."""
    rng = np.random.default_rng(3)
    log_odds = (1.0 + 1e-7 * np.arange(400)).astype(np.float64)
    labels = (rng.random(400) < 0.5).astype(np.int64)
    p = Predictions(np.stack([np.zeros(400), log_odds], axis=1)[None].astype(np.float32), labels=labels)
    curve = retained_roc(p)
    for specificity in (0.2, 0.5, 0.8):
        allowed = curve.false_positive_rate <= 1.0 - specificity + 1e-12
        expected = curve.true_positive_rate[allowed].max()
        assert sensitivity_at_specificity(p, specificity=specificity) == pytest.approx(expected, abs=1e-12)


def test_the_point_asked_of_screening_is_85_per_cent_sensitivity_at_80_per_cent_specificity():
    assert NHS_POINT == (0.85, 0.80)
    assert metric_named(f"specificity_at_sensitivity(sensitivity={NHS_POINT[0]})").name == "specificity_at_sensitivity"
    assert metric_named(f"sensitivity_at_specificity(specificity={NHS_POINT[1]})").name == "sensitivity_at_specificity"
