"""Mistakes in scoring on made-up predictions whose two values are known."""

from __future__ import annotations

import numpy as np
import pytest
from results.scoring_errata import MISTAKES, Effect, resampled_rows, resampled_values
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
    published, correct = resampled_values(p, MISTAKES[0], replicates=3, seed=0)
    assert correct[0] == pytest.approx(roc_auc_score(p.ood, doubts(p)))
    assert published[0] == pytest.approx(roc_auc_score(flag, doubts(p)[mirrored]))
    published, correct = resampled_values(p, MISTAKES[1], replicates=3, seed=0)
    assert correct[0] == pytest.approx(average_precision_score(p.ood, doubts(p)))
    assert published[0] == pytest.approx(1.0 - average_precision_score(flag, -doubts(p)[mirrored]))
    assert len(published) == 4


def test_resampled_rows_stay_on_their_side_or_keep_groups_together():
    p = predictions()
    rows = resampled_rows(p, np.random.default_rng(1))
    assert np.array_equal(p.ood[rows], p.ood)
    assert len(np.unique(rows)) < len(rows)
    grouped = p.with_checked(group=np.repeat([f"p{i}" for i in range(20)], 3))
    names, counts = np.unique(grouped.group[resampled_rows(grouped, np.random.default_rng(1))], return_counts=True)
    assert len(names) < 20
    assert (counts % 3 == 0).all()


def test_an_effect_has_the_mean_change_the_agreement_of_orders_and_both_leaders():
    correct = np.array([[0.9, 0.8, 0.7]] * 5)
    published = np.array([[0.8, 0.9, 0.7]] * 5)
    effect = Effect(MISTAKES[0], "few", ("a", "b", "c"), published, correct)
    assert effect.change == pytest.approx((0.0, 0.0, 0.0))
    assert effect.agreement == pytest.approx((1 / 3, 1 / 3, 1 / 3))
    assert effect.leaders == ("b", "a")
