"""Scores drawn against each other."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import spearmanr
from sklearn import metrics as sk

from dubio.reporting.run_view import RunView
from dubio.studies.text.scatter import diversity_of, diversity_reading, likelihoods_of, transfer_of
from tests.reporting.stored_runs import World, stored, task_of


def test_diversity_is_drawn_against_accuracy_where_something_is_pooled(text_run: RunView) -> None:
    cloud = diversity_of(text_run, task_of(text_run, "digits"))
    assert cloud is not None
    titles = {m.title: m.name for m in text_run.methods}
    assert "Deterministic" not in {point.style.title for point in cloud.points}
    for point in cloud.points:
        name = titles[point.style.title]
        assert point.x.mean == pytest.approx(text_run.scores.cells["digits", "test", name, "diversity"].mean)
        assert point.y.mean == pytest.approx(text_run.scores.cells["digits", "test", name, "accuracy"].mean)
    expected = spearmanr([p.x.mean for p in cloud.points], [p.y.mean for p in cloud.points]).statistic
    assert f"{expected:+.2f}".replace("-", "−") in diversity_reading(cloud)


def test_detection_is_drawn_against_accuracy_only_where_shifted_data_have_labels(
    text_world: World, text_run: RunView
) -> None:
    assert transfer_of(text_run, task_of(text_run, "screening")) == []
    panels = {panel.title: panel for panel in transfer_of(text_run, task_of(text_run, "digits"))}
    assert set(panels) == {"digits → blur, worst severity", "digits → noise, worst severity"}
    point = next(p for p in panels["digits → blur, worst severity"].points if p.style.title == "Deterministic")
    home, away = (stored(text_world, "digits", "deterministic", split) for split in ("test", "blur-5"))
    areas = [
        sk.roc_auc_score(np.repeat([0, 1], [len(a), len(b)]), -np.concatenate([a.probs.max(1), b.probs.max(1)]))
        for a, b in zip(home, away, strict=True)
    ]
    assert point.y.values == pytest.approx(areas, abs=1e-4)  # confidences that round to one are tied in 1 − max p
    assert point.x.values == pytest.approx([(p.probs.argmax(axis=1) == p.labels).mean() for p in away])


def test_likelihoods_are_those_of_the_table(text_run: RunView) -> None:
    cloud = likelihoods_of(text_run, task_of(text_run, "screening"))
    names = {m.title: m.name for m in text_run.methods}
    for point in cloud.points:
        name = names[point.style.title]
        cells = [text_run.scores.cells["screening", "test", name, m] for m in ("nll", "calibrated_nll")]
        assert (point.x.mean, point.y.mean) == pytest.approx([cell.mean for cell in cells])
