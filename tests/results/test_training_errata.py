"""Mistakes in training: differences of made-up runs, with the interval that the verdicts give."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from results.errata import GapShare, change_text, errata_sections, gap_sentence, write_errata
from results.pages import ROOT
from results.scoring_errata import MISTAKES
from results.tables import interval_text
from results.training_errata import STUDIES, compared, order_agreement, training_changes
from scipy import stats

from dubio.core.predictions import Predictions
from dubio.metrics.metric import metric_named
from dubio.runner.benchmark_file import load_benchmark


def stored(accuracy, seed, rows=400):
    """Predictions with this accuracy on one half of shared labels."""
    labels = np.random.default_rng(0).integers(0, 2, rows)
    wrong = np.random.default_rng(seed).permutation(rows) >= round(accuracy * rows)
    logits = np.where(np.eye(2, dtype=bool)[labels ^ wrong], 1.0, 0.0)[None].astype(np.float32)
    own = Predictions(logits, labels)
    run = SimpleNamespace(id=f"{accuracy}-{seed}")
    return SimpleNamespace(in_domain=lambda: own, with_ood=lambda: None, run=run, task=SimpleNamespace(key="few"))


def test_one_training_is_judged_over_test_rows_as_a_paired_test_is():
    sides = {"corrected": [stored(0.9, 1)], "mistaken": [stored(0.8, 2)]}
    change = compared("one", "accuracy", sides)
    right = {name: own[0].in_domain().logits[0].argmax(1) == own[0].in_domain().labels for name, own in sides.items()}
    differences = right["mistaken"].astype(float) - right["corrected"]
    test = stats.ttest_1samp(differences, 0.0)
    low, high = test.confidence_interval()
    assert (change.corrected.mean, change.mistaken.mean) == (0.9, 0.8)
    assert (change.test.difference, change.test.low, change.test.high) == pytest.approx((-0.1, low, high), rel=1e-3)


def test_one_training_is_no_verdict():
    """A change over test rows alone was marked as significant."""
    one = compared("one", "accuracy", {"corrected": [stored(0.9, 1)], "mistaken": [stored(0.5, 2)]})
    assert one.test.p < 0.05
    assert "**" not in change_text(one)
    sides = {"corrected": [stored(0.9, 1), stored(0.9, 3)], "mistaken": [stored(0.5, 2), stored(0.5, 4)]}
    assert change_text(compared("two", "accuracy", sides)).startswith("**0.500: -0.400")


def test_several_trainings_widen_the_interval():
    one = compared("one", "accuracy", {"corrected": [stored(0.9, 1)], "mistaken": [stored(0.8, 2)]})
    accuracies = ((0.86, 0.94), (0.75, 0.85))
    corrected, mistaken = ([stored(value, i) for i, value in enumerate(own)] for own in accuracies)
    several = compared("one", "accuracy", {"corrected": corrected, "mistaken": mistaken})
    assert several.test.difference == pytest.approx(-0.1)
    assert several.test.high - several.test.low > one.test.high - one.test.low


def test_only_methods_that_were_trained_both_ways_and_differ_are_compared():
    same = stored(0.7, 5)
    runs = {
        ("base", "a"): {(0, 0): stored(0.9, 1), (1, 0): stored(0.9, 3)}, ("wrong", "a"): {(0, 0): stored(0.8, 2)},
        ("base", "b"): {(0, 0): same}, ("wrong", "b"): {(0, 0): same},
        ("base", "c"): {(0, 0): stored(0.6, 4)},
    }  # fmt: skip
    changes = training_changes(runs, "base", "wrong", ["accuracy"], ["a", "b", "c"])
    assert [(change.method, change.corrected.n) for change in changes] == [("a", 1)]
    assert order_agreement(runs, "base", "wrong", "accuracy") == (1.0, 2)


def test_sentences_say_what_was_not_measured():
    assert "The share of the three was not measured" in gap_sentence([], "the three")
    shares = [GapShare(0.04, 0.01, False), GapShare(0.04, 0.03, True)]
    judged = "mean over 2 methods; the change of AUROC is significant with 1 of them"
    assert f"explain 50% of the gap ({judged})" in gap_sentence(shares, "both")
    higher = gap_sentence([GapShare(0.04, -0.02, False)], "both")
    assert "do not explain the gap, with them AUROC is higher still, by 0.020" in higher
    assert "significant with none of them" in higher
    assert interval_text(0.5, -0.25, 1.25, places=2) == "+0.50 [-0.25, +1.25]"


def test_every_score_of_the_page_exists_and_every_task_is_in_its_benchmark():
    names = ("text", "words", "weights", "labels", "retina", "ensembles", "ensembles")
    files = [f"errata-{name}" for name in names]
    shown: dict[str, set[str]] = {}
    for study, name in zip(STUDIES, files, strict=True):
        shown.setdefault(name, set()).update({study.base, *study.mistakes.values()})
        benchmark = load_benchmark(str(ROOT / "results" / f"{name}.toml"))
        assert shown[name] <= {entry.called for entry in benchmark.tasks}
        assert {*study.methods} <= {*benchmark.all_methods}
        assert [metric_named(metric).name for metric in study.metrics] == list(study.metrics)
    for name, tasks in shown.items():
        assert tasks == {entry.called for entry in load_benchmark(str(ROOT / "results" / f"{name}.toml")).tasks}
    assert all(metric_named(name) for mistake in MISTAKES for name in (mistake.published, mistake.correct))


def test_sections_whose_tasks_a_store_lacks_stay_as_the_page_has_them(tmp_path):
    """Writing the page from a store of one study marked the figures of all others as not run."""
    page = SimpleNamespace(title="Errata", name="errata", path=tmp_path / "errata.md")
    write_errata(page, tmp_path / "empty")
    assert page.path.read_text().count("not run") > 30
    headings = [section.heading for section in errata_sections()]
    page.path.write_text("# Errata\n" + "".join(f"\n## {heading}\n\nFigures of {heading}.\n" for heading in headings))
    text = write_errata(page, tmp_path / "empty").read_text()
    assert "not run" not in text
    assert [line for line in text.splitlines() if line.startswith("## ")] == [f"## {heading}" for heading in headings]
    assert all(f"\n## {heading}\n\nFigures of {heading}.\n" in text for heading in headings)
