import numpy as np
import pytest
from hypothesis import given, settings
from sklearn.metrics import roc_auc_score, roc_curve

from dubio.core.errors import UserError
from dubio.core.predictions import Predictions
from dubio.metrics.auc import class_auroc
from dubio.metrics.outcomes import correct
from dubio.metrics.quantities import uncertainty
from dubio.metrics.referral_curve import FRACTIONS, referral_curve, retained_roc
from tests.metrics.metric_world import coarse, drawn, drawn_multilabel, of_probs, seeds


def test_each_fraction_is_the_accuracy_and_auc_of_the_least_uncertain_rows():
    predictions = drawn(0, classes=2, rows=101)
    curve = referral_curve(predictions, quantity="predictive_entropy")
    order = np.argsort(uncertainty(predictions, "predictive_entropy"))
    for place, fraction in enumerate(FRACTIONS):
        kept = order[: int(np.floor(fraction * 101 + 0.5))]
        assert curve.kept[place] == len(kept)
        assert curve.accuracy[place] == pytest.approx(correct(predictions)[kept].mean())
        assert curve.auc[place] == pytest.approx(roc_auc_score(predictions.labels[kept], predictions.probs[kept, 1]))
    assert curve.undefined == (None,) * len(FRACTIONS)


def test_one_class_left_is_undefined_with_a_reason():
    predictions = of_probs([[0.99, 0.01], [0.98, 0.02], [0.45, 0.55], [0.4, 0.6]], [0, 0, 1, 1], classes=("no", "yes"))
    curve = referral_curve(predictions, fractions=(0.5, 1.0))
    assert np.isnan(curve.auc[0])
    assert curve.undefined[0] == "every row is other than class 'yes'"
    assert curve.auc[1] == 1.0


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


def test_random_referral_is_a_control():
    predictions = drawn(1, rows=2000)
    curve = referral_curve(predictions, quantity="random", seed=3)
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
