from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from scipy.stats import entropy

from dubio.core.errors import UnknownName, UserError
from dubio.core.predictions import Predictions, pool_members
from dubio.metrics.decomposition import decompose
from dubio.metrics.metric import metric_named, score_each
from dubio.metrics.quantities import (
    QUANTITIES,
    applicable_quantities,
    confidence,
    data_uncertainty,
    extreme_rows,
    model_uncertainty,
    random_scores,
    uncertainty,
)
from tests.metrics.helpers import drawn, drawn_multilabel, of_probs, score, seeds


def plain_probs(predictions):
    z = predictions.logits.astype(np.float64)
    if predictions.target == "multilabel":
        return 1 / (1 + np.exp(-z))
    e = np.exp(z - z.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def test_entropies_equal_scipy():
    predictions = drawn(0)
    p = plain_probs(predictions)
    assert uncertainty(predictions, "predictive_entropy") == pytest.approx(entropy(p.mean(0), axis=-1), abs=1e-12)
    expected = entropy(p, axis=-1).mean(0)
    assert uncertainty(predictions, "expected_entropy") == pytest.approx(expected, abs=1e-12)
    information = np.mean([entropy(part, p.mean(0), axis=-1) for part in p], axis=0)
    assert uncertainty(predictions, "mutual_information") == pytest.approx(information, abs=1e-12)


def test_multilabel_entropies_are_sums_of_bernoulli_entropies():
    predictions = drawn_multilabel(0)
    p = plain_probs(predictions)

    def bernoulli(q):
        return -(q * np.log(q) + (1 - q) * np.log1p(-q)).sum(-1)

    assert uncertainty(predictions, "predictive_entropy") == pytest.approx(bernoulli(p.mean(0)), abs=1e-12)
    assert uncertainty(predictions, "expected_entropy") == pytest.approx(bernoulli(p).mean(0), abs=1e-12)


def test_multilabel_confidence_is_over_asserted_labels_else_the_highest():
    labels = np.zeros((2, 3), dtype=int)
    p = np.array([[0.9, 0.7, 0.1], [0.2, 0.4, 0.3]])
    predictions = Predictions(np.log(p / (1 - p))[None].astype(np.float32), labels, target="multilabel")
    assert confidence(predictions) == pytest.approx([0.8, 0.4], abs=1e-6)
    assert uncertainty(predictions) == pytest.approx([0.2, 0.6], abs=1e-6)


@pytest.mark.parametrize("make", [drawn, drawn_multilabel])
def test_variances_add_up_and_split_between_and_within_members(make):
    parts = [make(1, samples=4), make(1, samples=2)]
    rng = np.random.default_rng(5)
    parts[1] = replace(parts[1], logits=rng.normal(size=parts[1].logits.shape).astype(np.float32))
    predictions = pool_members(parts)
    p = plain_probs(predictions)
    found = decompose(predictions)
    assert found.total_variance == pytest.approx((p.mean(0) * (1 - p.mean(0))).mean(-1))
    assert found.sample_variance == pytest.approx(p.var(axis=0).mean(-1))
    assert found.total_variance == pytest.approx(found.expected_variance + found.sample_variance)
    centres = np.concatenate([np.repeat(p[:4].mean(0)[None], 4, 0), np.repeat(p[4:].mean(0)[None], 2, 0)])
    assert found.between_members == pytest.approx(centres.var(axis=0).mean(-1))
    assert found.within_members == pytest.approx(((p - centres) ** 2).mean(0).mean(-1))
    assert found.sample_variance == pytest.approx(found.between_members + found.within_members)


@settings(max_examples=25, deadline=None)
@given(seeds)
def test_information_is_never_negative_and_zero_for_equal_samples(seed):
    predictions = drawn(seed, scale=10.0)
    assert (uncertainty(predictions, "mutual_information") >= 0).all()
    repeated = Predictions(np.repeat(predictions.logits[:1], 5, axis=0), predictions.labels)
    assert (uncertainty(repeated, "mutual_information") == 0).all()
    assert (uncertainty(repeated, "model_uncertainty") == 0).all()


def test_certain_rows_have_no_uncertainty_and_opposed_certainty_is_all_information():
    sure = of_probs([[[1.0, 0.0]], [[1.0, 0.0]]])
    for name in ("confidence", "predictive_entropy", "expected_entropy", "mutual_information", "total_variance"):
        assert uncertainty(sure, name) == pytest.approx([0.0], abs=0)
    opposed = of_probs([[[1.0, 0.0]], [[0.0, 1.0]]])
    assert uncertainty(opposed, "mutual_information") == pytest.approx([np.log(2)])
    assert uncertainty(opposed, "expected_entropy") == pytest.approx([0.0], abs=0)
    assert uncertainty(opposed, "model_uncertainty") == pytest.approx([0.25])
    certain = Predictions(np.array([[[np.inf, -np.inf]]], np.float32), np.array([[1, 0]]), target="multilabel")
    assert uncertainty(certain, "predictive_entropy") == pytest.approx([0.0], abs=0)


def test_nearly_certain_rows_are_kept_apart():
    predictions = Predictions(np.array([[[40.0, 0.0], [41.0, 0.0]]], np.float32), np.array([0, 0]))
    doubts = uncertainty(predictions)
    assert doubts == pytest.approx([np.exp(-40), np.exp(-41)], rel=1e-6)


def test_temperature_touches_the_pooled_quantities_alone():
    predictions = drawn(3)
    warmed = replace(predictions, temperature=2.0)
    powered = predictions.probs**0.5
    powered /= powered.sum(1, keepdims=True)
    assert uncertainty(warmed, "predictive_entropy") == pytest.approx(entropy(powered, axis=1))
    assert uncertainty(warmed) == pytest.approx(1 - powered.max(1))
    for name in ("mutual_information", "expected_entropy", "total_variance"):
        assert (uncertainty(warmed, name) == uncertainty(predictions, name)).all()
    several = drawn_multilabel(3)
    odds = several.probs / (1 - several.probs)
    p = odds**0.5 / (1 + odds**0.5)
    wanted = -(p * np.log(p) + (1 - p) * np.log(1 - p)).sum(1)
    assert uncertainty(replace(several, temperature=2.0), "predictive_entropy") == pytest.approx(wanted)


def test_variances_of_heads_are_used_where_given_and_refused_where_not():
    rng = np.random.default_rng(0)
    predictions = drawn(0, samples=1)
    with pytest.raises(UserError, match="model_uncertainty cannot be computed: it needs at least two samples"):
        uncertainty(predictions, "model_uncertainty")
    with pytest.raises(UserError, match="needs data_variance"):
        uncertainty(predictions, "data_uncertainty")
    gp = replace(predictions, model_variance=rng.random((1, 60)).astype(np.float32))
    assert uncertainty(gp, "model_uncertainty") == pytest.approx(gp.model_variance[0])
    assert score(gp, ["aurc(quantity=model_uncertainty)"])
    noisy = replace(drawn(0), data_variance=rng.random((3, 60, 4)).astype(np.float32))
    assert uncertainty(noisy, "data_uncertainty") == pytest.approx(noisy.data_variance.mean((0, 2)), rel=1e-6)
    assert "data_uncertainty" in applicable_quantities(noisy)
    assert "data_uncertainty" not in applicable_quantities(gp)


def test_random_is_seeded_and_names_are_checked():
    predictions = drawn(0)
    assert (uncertainty(predictions, "random") == uncertainty(predictions, "random")).all()
    assert (uncertainty(predictions, "random", seed=1) != uncertainty(predictions, "random")).any()
    with pytest.raises(UnknownName, match="Did you mean 'predictive_entropy'"):
        uncertainty(predictions, "predictiv_entropy")
    assert [q.name for q in QUANTITIES.values() if not q.higher_is_more_uncertain] == ["confidence"]


def test_blocks_change_nothing():
    predictions = drawn(0, rows=2500, classes=30, samples=4)
    p = plain_probs(predictions)
    assert uncertainty(predictions, "mutual_information") == pytest.approx(
        entropy(p.mean(0), axis=-1) - entropy(p, axis=-1).mean(0), abs=1e-10
    )


def test_a_score_of_the_system_itself_is_a_quantity_of_every_ranking_metric():
    plain = replace(drawn(3, rows=60), ood=np.arange(60) % 4 == 0)
    doubt = uncertainty(plain, "predictive_entropy")
    own = replace(plain, scores={"energy": doubt})
    for name in ("aurc", "referral_gain", "misclassification_auroc", "ood_auroc", "ood_fpr95", "referral_accuracy"):
        expected = metric_named(f"{name}(quantity=predictive_entropy)").compute(plain)
        assert metric_named(f"{name}(quantity=energy)").compute(own) == pytest.approx(expected, abs=1e-12)
    assert metric_named("aurc(quantity=energy)").name == 'aurc(quantity="energy")'
    assert applicable_quantities(own)[0] == "energy"
    with pytest.raises(UnknownName, match="energy"):
        score_each(plain, ["aurc(quantity=energy)"])
    with pytest.raises(UnknownName, match="Did you mean 'energy'"):
        uncertainty(own, "energi")


def test_the_variance_of_a_head_is_that_of_a_single_draw():
    rng = np.random.default_rng(0)
    for samples in (1, 2):
        logits, own = rng.normal(size=(samples, 6, 3)).astype(np.float32), rng.random((samples, 6)).astype(np.float32)
        with_head = Predictions(logits, np.zeros(6, dtype=np.int64), model_variance=own)
        without = Predictions(logits, np.zeros(6, dtype=np.int64))
        expected = own[0] if samples == 1 else decompose(without).sample_variance
        np.testing.assert_allclose(model_uncertainty(with_head), expected, rtol=1e-6)
        np.testing.assert_allclose(model_uncertainty(without), decompose(without).sample_variance)


def test_a_quantity_of_what_is_not_there_is_refused_and_chance_has_the_seed_zero():
    with pytest.raises(UserError, match="it needs data_variance"):
        data_uncertainty(drawn(0))
    assert random_scores(drawn(0)).tolist() == random_scores(drawn(0), seed=0).tolist()
    assert random_scores(drawn(0)).tolist() != random_scores(drawn(0), seed=1).tolist()


def test_extreme_rows_by_hand():
    top = np.linspace(0.95, 0.55, 12)
    labels = np.array([0, 1, 0, 0, -1, 0, 0, 1, 0, 0, 0, 0])  # the second and the eighth row are wrong
    some = of_probs(np.stack([top, 1 - top], axis=1), labels)
    found = extreme_rows(some, count=3)
    assert (found.sure_right.tolist(), found.unsure_right.tolist()) == ([0, 2, 3], [11, 10, 9])
    assert (found.sure_wrong.tolist(), found.unsure_wrong.tolist()) == ([1], [7])
    assert found.rows.tolist() == [0, 1, 2, 3, 7, 9, 10, 11]
    few = extreme_rows(some.take(np.array([0, 2, 3, 5, 6])), count=3)
    assert (few.sure_right.tolist(), few.unsure_right.tolist()) == ([0, 1, 2], [4, 3])
    assert extreme_rows(some.take(np.array([4])), count=3).rows.tolist() == []
