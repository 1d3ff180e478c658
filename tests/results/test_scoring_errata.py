"""Mistakes in scoring on made-up predictions whose two values are known."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from results.errata import domain_sentence
from results.scoring_errata import MISTAKES, SCORED, Effect, domain_effects, resampled_rows, resampled_values
from results.stored import Stored
from sklearn.metrics import average_precision_score, roc_auc_score

from dubio.core.predictions import Predictions


def predictions(rows=60, ood=20, seed=0, *, last=True):
    generator = np.random.default_rng(seed)
    flags = np.arange(rows) >= rows - ood if last else np.arange(rows) < ood
    logits = generator.normal(size=(1, rows, 3)) * np.where(flags, 0.5, 2.0)[None, :, None]
    return Predictions(logits.astype(np.float32), generator.integers(0, 3, rows), ood=flags)


def doubts(p):
    z = p.logits[0].astype(np.float64)
    return 1.0 - (np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)).max(axis=1)


@pytest.mark.parametrize("last", [True, False])
def test_the_first_values_are_those_of_the_test_set(last):
    p = predictions(last=last)
    n, flagged = len(p), np.flatnonzero(p.ood)
    mirrored = np.concatenate([n - 1 - flagged, flagged])
    flag = np.arange(2 * len(flagged)) >= len(flagged)
    published, correct = resampled_values(p, MISTAKES[0], replicates=3)
    assert correct[0] == pytest.approx(roc_auc_score(p.ood, doubts(p)))
    assert published[0] == pytest.approx(roc_auc_score(flag, doubts(p)[mirrored]))
    published, correct = resampled_values(p, MISTAKES[1], replicates=3)
    assert correct[0] == pytest.approx(average_precision_score(p.ood, doubts(p)))
    assert published[0] == pytest.approx(1.0 - average_precision_score(flag, -doubts(p)[mirrored]))
    assert len(published) == 4


def made_of(split: str, score: float):
    """A stored method whose in-domain rows are ``ids/1`` to ``ids/40`` and which detects a split so well."""
    generator = np.random.default_rng(round(100 * score))

    def rows(count, scale, prefix):
        logits = scale * generator.normal(size=(1, count, 3))
        ids = np.array([f"{prefix}/{i + 1}" for i in range(count)])
        return Predictions(logits.astype(np.float32), generator.integers(0, 3, count), ids=ids)

    inside, outside = rows(40, 3.0, "in"), rows(200, 3.0 * (1 - score), "out")
    other = SimpleNamespace(name=split)
    task = SimpleNamespace(
        key="amazon-books", in_domain="test", splits=(),
        of_kind=lambda kind: (other,) if kind == "shift" else (),
        read=lambda store, run, chosen: inside if chosen == "test" else outside,
    )  # fmt: skip
    stored = Stored(None, task, SimpleNamespace(id=f"run-{score}", fits=()))
    object.__setattr__(stored, "cached", lambda purpose, compute: np.array(compute()))
    return stored


def test_an_index_that_takes_shifted_rows_for_in_domain_ones_pulls_the_auroc_to_chance(monkeypatch):
    """With 40 in-domain rows before 200 of the other domain, 160 of those count as in-domain."""
    monkeypatch.setattr("results.scoring_errata.REPLICATES", 3)
    runs = {("amazon-books", name): {(0, None): made_of("dvd", score)} for name, score in (("a", 0.5), ("b", 0.8))}
    (effect,) = domain_effects(runs, "amazon-books")
    assert (effect.task, effect.methods) == ("books → dvd", ("a", "b"))
    published, correct = effect.means
    p = made_of("dvd", 0.8).beside(SimpleNamespace(name="dvd"))
    rows = np.concatenate([np.arange(199, -1, -1), np.arange(40, 240)])
    by_hand = roc_auc_score(np.repeat([0, 1], 200), doubts(p)[rows])
    assert effect.published[0, 1] == pytest.approx(by_hand, abs=1e-6)
    assert correct > 0.7
    assert abs(published - (0.2 * correct + 0.8 * 0.5)) < 0.05
    sentence = domain_sentence([(0.5, 0.6), (0.53, 0.72)])
    assert "By its index they are 0.50 to 0.53 here, correctly 0.60 to 0.72." in sentence
    assert domain_effects(runs, "amazon-dvd") == []


def test_every_mistake_is_of_tasks_that_are_scored():
    assert {task for mistake in MISTAKES for task in mistake.tasks} == set(SCORED)


def test_resampled_rows_stay_on_their_side_or_keep_groups_together():
    p = predictions()
    rows = resampled_rows(p, np.random.default_rng(1))
    assert np.array_equal(p.ood[rows], p.ood)
    assert len(np.unique(rows)) < len(rows)
    grouped = p.with_checked(group=np.repeat([f"p{i}" for i in range(20)], 3))
    names, counts = np.unique(grouped.group[resampled_rows(grouped, np.random.default_rng(1))], return_counts=True)
    assert len(names) < 20
    assert (counts % 3 == 0).all()


def test_replicates_of_rows_in_order_scatter_around_the_test_set():
    """`~index` takes the first rows: mixed replicates of rows that come class by class did not hold its value."""
    p = predictions(rows=600, ood=200)
    order = np.r_[np.argsort(doubts(p)[:400]), np.arange(400, 600)]  # the surest in-domain rows come first
    published, _ = resampled_values(p.take(order), MISTAKES[0], replicates=100)
    low, high = np.quantile(published[1:], [0.025, 0.975])
    assert low < published[0] < high
    assert np.median(published[1:]) == pytest.approx(published[0], abs=0.02)


def test_an_effect_has_the_mean_change_the_agreement_of_orders_and_both_leaders():
    correct = np.array([[0.9, 0.8, 0.7]] * 5)
    published = np.array([[0.8, 0.9, 0.7]] * 5)
    effect = Effect(MISTAKES[0], "few", ("a", "b", "c"), published, correct)
    assert effect.change == pytest.approx((0.0, 0.0, 0.0))
    assert effect.agreement == pytest.approx((1 / 3, 1 / 3, 1 / 3))
    assert effect.leaders == ("b", "a")
