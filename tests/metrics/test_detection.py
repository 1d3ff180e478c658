from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import pointbiserialr
from sklearn.metrics import average_precision_score, roc_auc_score

from dubio.core.errors import UserError
from dubio.core.predictions import join
from dubio.metrics.detection import (
    detect,
    generalisation_gap,
    id_aupr,
    ood_aupr,
    ood_auroc,
    ood_correlation,
    ood_fpr95,
    placements,
)
from dubio.metrics.metric import metric_named
from dubio.metrics.quantities import applicable_quantities, uncertainty
from tests.metrics.helpers import coarse, drawn, of_probs


def mixture(make=drawn, **more):
    ordinary = make(0, rows=120, **more)
    strange = make(1, rows=80, **more)
    return join([ordinary, replace(strange, labels=np.full(80, -1), ood=np.ones(80, dtype=bool))])


@pytest.mark.parametrize("make", [drawn, coarse])
def test_every_quantity_is_judged_as_scikit_learn_judges_it(make):
    predictions = mixture(make, samples=3)
    for name in applicable_quantities(predictions):
        found = detect(predictions, name)
        scores = uncertainty(predictions, name).round(9)
        assert found.auroc == pytest.approx(roc_auc_score(predictions.ood, scores), abs=1e-9)
        assert found.aupr_ood == pytest.approx(average_precision_score(predictions.ood, scores), abs=1e-9)
        assert found.aupr_id == pytest.approx(average_precision_score(~predictions.ood, -scores), abs=1e-9)
        assert found.prevalence == pytest.approx(0.4)


def test_interleaved_rows_give_the_same_as_rows_in_two_parts():
    predictions = mixture()
    mixed = predictions.take(np.random.default_rng(0).permutation(len(predictions)))
    for figure in (ood_auroc, ood_aupr, id_aupr, ood_fpr95, ood_correlation):
        assert figure(mixed) == pytest.approx(figure(predictions), abs=1e-12)


def test_correlation_is_that_of_the_quantity_as_defined():
    predictions = mixture(skill=4.0)
    strange = predictions.take(predictions.ood)
    predictions = join([predictions.take(~predictions.ood), replace(strange, logits=strange.logits * 0.1)])
    wanted = pointbiserialr(predictions.ood, predictions.probs.max(1)).statistic
    assert ood_correlation(predictions) == pytest.approx(wanted)
    assert ood_correlation(predictions) < 0 < ood_correlation(predictions, quantity="predictive_entropy")


def test_perfect_detection_and_no_information():
    perfect = of_probs([[0.99, 0.01], [0.98, 0.02], [0.6, 0.4]], ood=np.array([False, False, True]))
    assert ood_auroc(perfect) == 1.0
    assert ood_aupr(perfect) == 1.0
    assert ood_fpr95(perfect) == 0.0
    constant = of_probs([[0.9, 0.1]] * 3, ood=np.array([False, False, True]))
    assert ood_auroc(constant) == 0.5
    assert ood_aupr(constant) == pytest.approx(1 / 3)
    assert ood_fpr95(constant) == 1.0
    assert np.isnan(ood_correlation(constant))


@pytest.mark.parametrize("flag", [True, False])
def test_rows_of_one_kind_are_refused(flag):
    predictions = of_probs([[0.9, 0.1]] * 2, ood=np.array([flag, flag]))
    with pytest.raises(UserError, match="needs both in- and out-of-distribution rows"):
        ood_auroc(predictions)


def test_generalisation_gap_is_of_labelled_rows():
    predictions = of_probs(
        [[0.9, 0.1], [0.2, 0.8], [0.7, 0.3], [0.7, 0.3], [0.6, 0.4]],
        [0, 1, 1, 0, -1],
        ood=np.array([False, False, True, True, True]),
    )
    assert generalisation_gap(predictions) == pytest.approx(0.5)
    with pytest.raises(UserError, match="labelled rows both in and out"):
        generalisation_gap(of_probs([[0.9, 0.1]] * 2, [0, -1], ood=np.array([False, True])))


def test_placements_average_to_the_area_and_vary_like_delongs():
    rng = np.random.default_rng(3)
    ood = rng.permutation(np.repeat([False, True], [70, 50]))
    scores = np.round(rng.normal(0.7 * ood, 1), 1)
    values = placements(scores, ood)
    assert values.mean() == pytest.approx(roc_auc_score(ood, scores))
    outside, inside = scores[ood], scores[~ood]
    wins = (outside[:, None] > inside) + 0.5 * (outside[:, None] == inside)
    delong = wins.mean(1).var() / 50 + wins.mean(0).var() / 70
    assert values.var() / 120 == pytest.approx(delong)


def test_the_areas_of_two_systems_are_compared_with_delongs_covariance():
    one, two = mixture(), mixture(coarse)
    assert (one.ood == two.ood).all()
    gaps = ood_auroc.metric().per_example(one) - ood_auroc.metric().per_example(two)
    wins = []
    for predictions in (one, two):
        scores, ood = uncertainty(predictions, "confidence"), predictions.ood
        pairs = scores[ood][:, None] - scores[~ood]
        wins.append((pairs > 0) + 0.5 * (pairs == 0))
    difference = wins[0] - wins[1]
    assert gaps.mean() == pytest.approx(difference.mean())
    # DeLong, DeLong and Clarke-Pearson (1988), with n and m for their n - 1 and m - 1
    delong = difference.mean(1).var() / 80 + difference.mean(0).var() / 120
    assert gaps.var() / 200 == pytest.approx(delong)


@pytest.mark.parametrize("quantity", ["confidence", "predictive_entropy"])
def test_every_figure_of_a_detection_is_that_of_scikit_learn_and_scipy(quantity):
    predictions = drawn(3, rows=80, ood=np.random.default_rng(9).random(80) < 0.3)
    ood, scores = predictions.ood, uncertainty(predictions, quantity)
    found = detect(predictions, quantity)
    as_defined = -scores if quantity == "confidence" else scores
    assert found.correlation == pytest.approx(pointbiserialr(ood, as_defined).statistic, abs=1e-6)
    assert found.aupr_id == pytest.approx(average_precision_score(~ood, -scores), abs=1e-9)
    for name, value in (("ood_aupr", found.aupr_ood), ("id_aupr", found.aupr_id), ("ood_auroc", found.auroc),
                        ("ood_correlation", found.correlation), ("ood_fpr95", found.fpr95)):  # fmt: skip
        assert metric_named(f"{name}(quantity={quantity})").compute(predictions) == pytest.approx(value), name
    with pytest.raises(UserError, match="out-of-distribution detection cannot be computed"):
        detect(predictions.take(~ood), quantity)


def test_placements_by_hand():
    """Two of three in-distribution rows lie below the first OOD row, none below the second: θ = (2/3 + 0)/2."""
    found = placements(np.array([0.5, 0.0, 0.1, 0.2, 0.9]), np.array([True, True, False, False, False]))
    expected = [1 / 3 + 5 / 2 * (2 / 3 - 1 / 3), 1 / 3 + 5 / 2 * (0 - 1 / 3)]
    expected += [1 / 3 + 5 / 3 * (share - 1 / 3) for share in (1 / 2, 1 / 2, 0.0)]
    np.testing.assert_allclose(found, expected, atol=1e-12)
